//! Reproducible random numbers, for tests of procedures that must tolerate noise.

/// A random number generator: xorshift64*.
pub struct Noise(u64);

impl Noise {
    /// A different sequence for every seed.
    pub fn new(seed: u64) -> Self {
        let mut noise = Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..8 {
            noise.uniform();
        }
        noise
    }

    /// 0..1.
    pub fn uniform(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Normally distributed, mean 0 and deviation 1, by Box and Muller.
    pub fn normal(&mut self) -> f64 {
        let (u, v) = (self.uniform().max(1e-12), self.uniform());
        (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
    }
}
