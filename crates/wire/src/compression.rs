//! Content that came compressed.

use std::{borrow::Cow, io::Read};

use crate::{
    CompressionError,
    proto::contents::{Compression, EncodedContent},
};

/// Decompression stops here, whatever the sender claims.
const MAX_DECOMPRESSED_BYTES: u64 = 16 * 1024 * 1024;

/// The bytes of a content, uncompressed.
///
/// # Errors
/// As [`uncompressed`].
pub fn content(encoded: &EncodedContent) -> Result<Cow<'_, [u8]>, CompressionError> {
    match encoded.compression {
        None => Ok(Cow::Borrowed(&encoded.content)),
        compressed => uncompressed(&encoded.content, compressed).map(Cow::Owned),
    }
}

/// Bytes that were compressed as `compression` says, which is a number of [`Compression`].
///
/// # Errors
/// When there is no such number, the bytes don't decompress, or they would be longer than 16 MiB.
pub fn uncompressed(bytes: &[u8], compression: Option<i32>) -> Result<Vec<u8>, CompressionError> {
    let Some(compression) = compression else {
        return Ok(bytes.to_vec());
    };
    match Compression::try_from(compression) {
        Ok(Compression::Deflate) => inflate(flate2::read::ZlibDecoder::new(bytes)),
        Ok(Compression::Gzip) => inflate(flate2::read::GzDecoder::new(bytes)),
        Err(_) => Err(CompressionError::Unknown { found: compression }),
    }
}

fn inflate(reader: impl Read) -> Result<Vec<u8>, CompressionError> {
    let mut bytes = Vec::new();
    let read = reader.take(MAX_DECOMPRESSED_BYTES + 1).read_to_end(&mut bytes)?;
    if read as u64 > MAX_DECOMPRESSED_BYTES { Err(CompressionError::TooLong) } else { Ok(bytes) }
}
