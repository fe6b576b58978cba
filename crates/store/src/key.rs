use std::fmt;

use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// The key of a database: 32 bytes, used as they are and not as a passphrase. Overwritten when dropped.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct DatabaseKey([u8; 32]);

/// Why a text is no key. The text itself is not repeated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a database key is 64 hex digits")]
pub struct KeyError;

impl DatabaseKey {
    /// A key from the operating system's randomness.
    pub fn generate() -> Self {
        Self(rand::random())
    }

    /// From its bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// From 64 hex digits. Anything else is an error: SQLCipher would silently take it for a passphrase.
    ///
    /// # Errors
    /// [`KeyError`] for any other text.
    pub fn from_hex(text: &str) -> Result<Self, KeyError> {
        let mut bytes = Zeroizing::new([0; 32]);
        hex::decode_to_slice(text, bytes.as_mut_slice()).map_err(|_| KeyError)?;
        Ok(Self(*bytes))
    }

    /// The 64 hex digits, for whoever keeps the key.
    pub fn to_hex(&self) -> Zeroizing<String> {
        Zeroizing::new(hex::encode(self.0))
    }
}

impl fmt::Debug for DatabaseKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Shows: STR-064.
    #[test]
    fn a_key_is_64_hex_digits_and_never_shown_by_itself() {
        let key = DatabaseKey::from_bytes([0xab; 32]);
        assert_eq!(DatabaseKey::from_hex(&key.to_hex()), Ok(key.clone()));
        assert_eq!(format!("{key:?}"), "DatabaseKey(..)");
        for wrong in ["", "ab", &"ab".repeat(31), &"ab".repeat(33), &"zz".repeat(32)] {
            assert_eq!(DatabaseKey::from_hex(wrong), Err(KeyError));
        }
    }
}
