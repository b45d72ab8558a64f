//! Reproducible random numbers, for tests of procedures that must tolerate noise.

/// A random number generator: xorshift64*.
pub struct Noise(u64);

impl Noise {
    /// A generator; every seed gives a different sequence.
    pub fn new(seed: u64) -> Self {
        let mut noise = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            noise.uniform();
        }
        noise
    }

    /// The next number, uniformly distributed, at least 0 and less than 1.
    pub fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The next number, normally distributed with mean 0 and standard deviation 1, by the method of Box and Muller.
    pub fn normal(&mut self) -> f64 {
        let (u, v) = (self.uniform().max(1e-12), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}
