//! Hashes of secrets in the forms of Cisco IOS: type 5 (MD5-crypt), 8 (PBKDF2 with HMAC-SHA-256) and 9 (scrypt).
//!
//! The parameters of types 8 and 9 are fixed by their forms: 20,000 rounds (RFC 8018), and N = 16,384, r = 1, p = 1
//! (RFC 7914). Both have a salt of 14 characters and a hash of 32 bytes, written in base64 with crypt's alphabet. Type 5 is
//! Poul-Henning Kamp's MD5-crypt, as crypt(3) has it under `$1$`; it is read from existing configurations and never made.
//!
//! Invariant: the time that [`matches`] takes does not depend on how much of a secret is right.

use lanyard_config::access::{Algorithm, Secret};
use md5::{Digest, Md5};
use sha2::Sha256;

/// crypt's alphabet of base64.
const ALPHABET: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// The length of a salt of types 8 and 9, in characters.
const SALT: usize = 14;
/// The rounds of type 8.
const ROUNDS: u32 = 20_000;
/// Type 9: log2 of N, r, p.
const SCRYPT: (u8, u32, u32) = (14, 1, 1);

/// Why a secret was not hashed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HashError {
    /// The system gives no random numbers for the salt.
    NoRandom(String),
    /// Type 5 is never made.
    Obsolete,
}

impl std::fmt::Display for HashError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoRandom(reason) => write!(f, "the system gives no random numbers for a salt: {reason}"),
            Self::Obsolete => write!(f, "a secret of type 5 is not made: use type 8 or 9"),
        }
    }
}

impl std::error::Error for HashError {}

/// Hashes a secret with a random salt; returns `$8$SALT$HASH` or `$9$SALT$HASH`. Takes tens of milliseconds.
///
/// # Errors
/// When the system gives no random numbers, or the algorithm is not one for new secrets.
pub fn hash(algorithm: Algorithm, text: &str) -> Result<String, HashError> {
    let mut random = [0; SALT];
    getrandom::fill(&mut random).map_err(|error| HashError::NoRandom(error.to_string()))?;
    let salt: String = random.iter().map(|byte| char::from(ALPHABET[usize::from(byte % 64)])).collect();
    let hashed = with_salt(algorithm, text, &salt).ok_or(HashError::Obsolete)?;
    Ok(format!("${}${salt}${hashed}", algorithm.number()))
}

/// True when `text` is the secret. Takes tens of milliseconds.
#[must_use]
pub fn matches(secret: &Secret, text: &str) -> bool {
    let (algorithm, stored) = match secret {
        Secret::Plain(_, plain) => return same(plain.as_bytes(), text.as_bytes()),
        Secret::Hashed(algorithm, stored) => (*algorithm, stored),
    };
    let mut parts = stored.split('$').skip(2);
    let (Some(salt), Some(wanted)) = (parts.next(), parts.next()) else { return false };
    let found = match algorithm {
        Algorithm::Md5 => Some(md5_crypt(text.as_bytes(), salt.as_bytes())),
        Algorithm::Sha256 | Algorithm::Scrypt => with_salt(algorithm, text, salt),
    };
    found.is_some_and(|found| same(found.as_bytes(), wanted.as_bytes()))
}

/// Takes as long as [`matches`] does for a secret of type 9. To be called for a user who does not exist, so that the response
/// time does not reveal which users exist.
pub fn match_nobody(text: &str) {
    let _ = with_salt(Algorithm::Scrypt, text, "..............");
}

fn with_salt(algorithm: Algorithm, text: &str, salt: &str) -> Option<String> {
    let mut output = [0; 32];
    match algorithm {
        Algorithm::Sha256 => {
            pbkdf2::pbkdf2_hmac::<Sha256>(text.as_bytes(), salt.as_bytes(), ROUNDS, &mut output);
        }
        Algorithm::Scrypt => {
            let (log_n, r, p) = SCRYPT;
            let params = scrypt::Params::new(log_n, r, p).ok()?;
            scrypt::scrypt(text.as_bytes(), salt.as_bytes(), &params, &mut output).ok()?;
        }
        Algorithm::Md5 => return None,
    }
    Some(base64(&output))
}

/// Compares without stopping at the first difference.
fn same(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && one.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
}

/// Base64 with the bits in the order of RFC 4648 and crypt's alphabet, without padding.
fn base64(bytes: &[u8]) -> String {
    let mut text = String::new();
    for group in bytes.chunks(3) {
        let number = (0..3).fold(0u32, |sum, at| sum << 8 | u32::from(group.get(at).copied().unwrap_or(0)));
        let sextet = |at: usize| char::from(ALPHABET[(number >> (18 - 6 * at) & 63) as usize]);
        text.extend((0..=group.len()).map(sextet));
    }
    text
}

/// MD5-crypt.
fn md5_crypt(password: &[u8], salt: &[u8]) -> String {
    let md5 = |parts: &[&[u8]]| -> [u8; 16] {
        parts.iter().fold(Md5::new(), |hash, part| hash.chain_update(part)).finalize().into()
    };
    let alternate = md5(&[password, salt, password]);
    let mut first = Md5::new().chain_update(password).chain_update(b"$1$").chain_update(salt);
    for piece in password.chunks(16) {
        first = first.chain_update(&alternate[..piece.len()]);
    }
    let mut bits = password.len();
    while bits > 0 {
        first = first.chain_update(if bits & 1 == 1 { &[0][..] } else { &password[..1] });
        bits >>= 1;
    }
    let mut hash: [u8; 16] = first.finalize().into();
    for round in 0..1000 {
        let odd = round % 2 == 1;
        let mut next = Md5::new();
        next.update(if odd { password } else { &hash[..] });
        if round % 3 != 0 {
            next.update(salt);
        }
        if round % 7 != 0 {
            next.update(password);
        }
        next.update(if odd { &hash[..] } else { password });
        hash = next.finalize().into();
    }
    // Three bytes at a time, in this order, the lowest six bits first.
    let groups = [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]];
    let mut text = String::new();
    let mut put = |mut number: u32, count: usize| {
        for _ in 0..count {
            text.push(char::from(ALPHABET[(number & 63) as usize]));
            number >>= 6;
        }
    };
    for group in groups {
        put(group.iter().fold(0, |sum, at: &usize| sum << 8 | u32::from(hash[*at])), 4);
    }
    put(hash[11].into(), 2);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashed(algorithm: Algorithm, text: &str) -> Secret {
        Secret::hashed(algorithm, text).expect("a hash")
    }

    /// The example hashes that hashcat publishes for Cisco IOS, all of the secret `hashcat`, and others that were made
    /// with `openssl passwd -1`.
    #[test]
    fn published_hashes() {
        for (algorithm, hash, text) in [
            (Algorithm::Md5, "$1$28772684$iEwNOgGugqO9.bIz5sk8k/", "hashcat"),
            (Algorithm::Md5, "$1$mERr$tmUg7hRVlDjfNDqoWVXLY.", ""),
            (Algorithm::Md5, "$1$mERr$drli3FzhBM5YyPZvQOKAi/", "a longer secret than sixteen bytes"),
            (Algorithm::Sha256, "$8$TnGX/fE4KGHOVU$pEhnEvxrvaynpi8j4f.EMHr6M.FzU8xnZnBr/tJdFWk", "hashcat"),
            (Algorithm::Scrypt, "$9$2MJBozw/9R3UsU$2lFhcKvpghcyw8deP25GOfyZaagyUOGBymkryvOdfo6", "hashcat"),
        ] {
            let secret = hashed(algorithm, hash);
            assert!(matches(&secret, text), "{hash}");
            assert!(!matches(&secret, "hashcaT"), "{hash}");
            assert!(!matches(&secret, "x"), "{hash}");
        }
    }

    #[test]
    fn a_generated_hash_matches_only_its_secret() {
        for algorithm in [Algorithm::Sha256, Algorithm::Scrypt] {
            let (one, other) =
                (hash(algorithm, "tiger é").expect("made"), hash(algorithm, "tiger é").expect("made"));
            assert_ne!(one, other, "the salt is random");
            assert!(matches(&hashed(algorithm, &one), "tiger é"));
            assert!(!matches(&hashed(algorithm, &one), "tiger"));
        }
        assert_eq!(hash(Algorithm::Md5, "tiger"), Err(HashError::Obsolete));
    }

    #[test]
    fn a_secret_that_is_not_hashed_yet() {
        let plain = Secret::Plain(Algorithm::Scrypt, "tiger".into());
        assert!(matches(&plain, "tiger") && !matches(&plain, "Tiger") && !matches(&plain, "tige"));
    }
}
