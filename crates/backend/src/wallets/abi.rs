//! The few calls and answers that judging a signature needs, in the contract ABI.

use highwater_identity::Address;

const WORD: usize = 32;

/// `isValidSignature(bytes32,bytes)`, which is also what a wallet returns to accept (ERC-1271).
const IS_VALID_SIGNATURE: [u8; 4] = [0x16, 0x26, 0xba, 0x7e];
/// `aggregate3((address,bool,bytes)[])` of Multicall3.
const AGGREGATE3: [u8; 4] = [0x82, 0xad, 0x56, 0xcb];

/// Multicall3, at this address on every chain that has it.
pub(super) const MULTICALL3: Address = Address::from_bytes([
    0xca, 0x11, 0xbd, 0xe0, 0x59, 0x77, 0xb3, 0x63, 0x11, 0x67, 0x02, 0x88, 0x62, 0xbe, 0x2a, 0x17, 0x39,
    0x76, 0xca, 0x11,
]);

/// What a signature ends in that brings its wallet's deployment along (ERC-6492).
const WRAPPER_MAGIC: [u8; WORD] = {
    let mut magic = [0x64; WORD];
    let mut at = 1;
    while at < WORD {
        magic[at] = 0x92;
        at += 2;
    }
    magic
};

/// A signature as ERC-6492 reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Signature<'a> {
    /// Handed to the wallet as it is.
    Plain(&'a [u8]),
    /// With the call that deploys or readies the wallet.
    Wrapped(Wrapped<'a>),
    /// Marked as wrapped, without being it.
    Malformed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wrapped<'a> {
    pub(super) factory: Address,
    pub(super) calldata: &'a [u8],
    pub(super) signature: &'a [u8],
}

impl<'a> Signature<'a> {
    pub(super) fn read(bytes: &'a [u8]) -> Self {
        match bytes.strip_suffix(&WRAPPER_MAGIC) {
            None => Self::Plain(bytes),
            Some(wrapped) => Wrapped::decode(wrapped).map_or(Self::Malformed, Self::Wrapped),
        }
    }
}

impl<'a> Wrapped<'a> {
    /// Takes the one encoding that `abi.encode(address, bytes, bytes)` gives and no other, so that
    /// nobody can respell a signature and have it count as a new one.
    fn decode(data: &'a [u8]) -> Option<Self> {
        let (padding, factory) = word(data, 0)?.split_at(WORD - 20);
        let factory: [u8; 20] = factory.try_into().ok()?;
        if padding.iter().any(|byte| *byte != 0) {
            return None;
        }
        let wrapped = Self {
            factory: Address::from_bytes(factory),
            calldata: bytes_at(data, number(data, WORD)?)?,
            signature: bytes_at(data, number(data, 2 * WORD)?)?,
        };
        (wrapped.encode() == data).then_some(wrapped)
    }

    fn encode(&self) -> Vec<u8> {
        let mut data = Vec::new();
        put_address(&mut data, self.factory);
        put_number(&mut data, 3 * WORD);
        put_number(&mut data, 4 * WORD + padded(self.calldata.len()));
        put_bytes(&mut data, self.calldata);
        put_bytes(&mut data, self.signature);
        data
    }
}

/// The question to a wallet contract.
pub(super) fn is_valid_signature(hash: &[u8; 32], signature: &[u8]) -> Vec<u8> {
    let mut data = IS_VALID_SIGNATURE.to_vec();
    data.extend_from_slice(hash);
    put_number(&mut data, 2 * WORD);
    put_bytes(&mut data, signature);
    data
}

/// Whether a wallet's answer accepts. Solidity callers read a `bytes4` from the first word and demand
/// that the rest of the word is zero; shorter data is no answer, as from an address without code or a
/// contract whose fallback swallows the call.
pub(super) fn accepts(returned: &[u8]) -> bool {
    word(returned, 0).is_some_and(|word| word[..4] == IS_VALID_SIGNATURE && word[4..] == [0; WORD - 4])
}

/// Calls made one after the other, each on the state that the one before left. A call that fails
/// doesn't fail the others.
pub(super) fn aggregate3(calls: &[(Address, &[u8])]) -> Vec<u8> {
    let mut data = AGGREGATE3.to_vec();
    put_number(&mut data, WORD);
    put_number(&mut data, calls.len());
    let mut offset = calls.len() * WORD;
    for (_, call) in calls {
        put_number(&mut data, offset);
        offset += 4 * WORD + padded(call.len());
    }
    for (target, call) in calls {
        put_address(&mut data, *target);
        put_number(&mut data, 1);
        put_number(&mut data, 3 * WORD);
        put_bytes(&mut data, call);
    }
    data
}

/// Of what [`aggregate3`] returned: what the call at `index` returned, or `None` within if it failed.
/// `None` outside if this is no such answer.
pub(super) fn aggregate3_result(data: &[u8], index: usize) -> Option<Option<&[u8]>> {
    let array = number(data, 0)?;
    if index >= number(data, array)? {
        return None;
    }
    let elements = data.get(array.checked_add(WORD)?..)?;
    let element = elements.get(number(elements, index.checked_mul(WORD)?)?..)?;
    let returned = bytes_at(element, number(element, WORD)?)?;
    match number(element, 0)? {
        0 => Some(None),
        1 => Some(Some(returned)),
        _ => None,
    }
}

fn padded(length: usize) -> usize {
    length.next_multiple_of(WORD)
}

fn put_number(data: &mut Vec<u8>, number: usize) {
    data.extend_from_slice(&[0; WORD - 8]);
    data.extend_from_slice(&(number as u64).to_be_bytes());
}

fn put_address(data: &mut Vec<u8>, address: Address) {
    data.extend_from_slice(&[0; WORD - 20]);
    data.extend_from_slice(address.as_bytes());
}

fn put_bytes(data: &mut Vec<u8>, bytes: &[u8]) {
    put_number(data, bytes.len());
    data.extend_from_slice(bytes);
    data.resize(data.len() + padded(bytes.len()) - bytes.len(), 0);
}

fn word(data: &[u8], at: usize) -> Option<&[u8; WORD]> {
    data.get(at..at.checked_add(WORD)?)?.try_into().ok()
}

fn number(data: &[u8], at: usize) -> Option<usize> {
    let (high, low) = word(data, at)?.split_at(WORD - 8);
    let low = u64::from_be_bytes(low.try_into().ok()?);
    high.iter().all(|byte| *byte == 0).then(|| usize::try_from(low).ok())?
}

fn bytes_at(data: &[u8], at: usize) -> Option<&[u8]> {
    let start = at.checked_add(WORD)?;
    data.get(start..start.checked_add(number(data, at)?)?)
}

#[cfg(test)]
mod tests {
    use sha3::{Digest as _, Keccak256};

    use super::*;

    fn unhex(words: &[&str]) -> Vec<u8> {
        hex::decode(words.concat()).expect("hex")
    }

    #[test]
    fn selectors_are_the_heads_of_the_signatures_hashes() {
        for (selector, signature) in [
            (IS_VALID_SIGNATURE, "isValidSignature(bytes32,bytes)"),
            (AGGREGATE3, "aggregate3((address,bool,bytes)[])"),
        ] {
            assert_eq!(selector, Keccak256::digest(signature)[..4], "{signature}");
        }
        assert_eq!(MULTICALL3.to_string(), "0xca11bde05977b3631167028862be2a173976ca11");
        assert_eq!(hex::encode(WRAPPER_MAGIC), "6492".repeat(16));
    }

    #[test]
    fn the_question_to_a_wallet_has_the_abis_form() {
        let expected = unhex(&[
            "1626ba7e",
            "1111111111111111111111111111111111111111111111111111111111111111",
            "0000000000000000000000000000000000000000000000000000000000000040",
            "0000000000000000000000000000000000000000000000000000000000000003",
            "aabbcc0000000000000000000000000000000000000000000000000000000000",
        ]);
        assert_eq!(is_valid_signature(&[0x11; 32], &[0xaa, 0xbb, 0xcc]), expected);
        // A whole word of bytes needs no padding, none at all no word.
        assert_eq!(is_valid_signature(&[0; 32], &[1; 32]).len(), 4 + 4 * 32);
        assert_eq!(is_valid_signature(&[0; 32], &[]).len(), 4 + 3 * 32);
    }

    #[test]
    fn calls_are_gathered_in_the_abis_form() {
        let (first, second) = (Address::from_bytes([0xaa; 20]), Address::from_bytes([0xbb; 20]));
        let expected = unhex(&[
            "82ad56cb",
            "0000000000000000000000000000000000000000000000000000000000000020",
            "0000000000000000000000000000000000000000000000000000000000000002",
            "0000000000000000000000000000000000000000000000000000000000000040",
            "00000000000000000000000000000000000000000000000000000000000000e0",
            "000000000000000000000000aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
            "0000000000000000000000000000000000000000000000000000000000000001",
            "0000000000000000000000000000000000000000000000000000000000000060",
            "0000000000000000000000000000000000000000000000000000000000000002",
            "0102000000000000000000000000000000000000000000000000000000000000",
            "000000000000000000000000bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb",
            "0000000000000000000000000000000000000000000000000000000000000001",
            "0000000000000000000000000000000000000000000000000000000000000060",
            "0000000000000000000000000000000000000000000000000000000000000000",
        ]);
        assert_eq!(aggregate3(&[(first, &[1, 2]), (second, &[])]), expected);
    }

    #[test]
    fn a_gathered_answer_is_read_and_a_torn_one_is_none() {
        let answer = unhex(&[
            "0000000000000000000000000000000000000000000000000000000000000020",
            "0000000000000000000000000000000000000000000000000000000000000002",
            "0000000000000000000000000000000000000000000000000000000000000040",
            "00000000000000000000000000000000000000000000000000000000000000a0",
            "0000000000000000000000000000000000000000000000000000000000000000",
            "0000000000000000000000000000000000000000000000000000000000000040",
            "0000000000000000000000000000000000000000000000000000000000000000",
            "0000000000000000000000000000000000000000000000000000000000000001",
            "0000000000000000000000000000000000000000000000000000000000000040",
            "0000000000000000000000000000000000000000000000000000000000000020",
            "1626ba7e00000000000000000000000000000000000000000000000000000000",
        ]);
        assert_eq!(aggregate3_result(&answer, 0), Some(None));
        let second = aggregate3_result(&answer, 1).flatten().expect("it succeeded");
        assert!(accepts(second));
        assert_eq!(aggregate3_result(&answer, 2), None);
        for length in 0..answer.len() {
            assert_eq!(aggregate3_result(&answer[..length], 1), None, "{length} bytes");
        }
        let mut wild = answer.clone();
        wild[3 * 32..4 * 32].fill(0xff);
        assert_eq!(aggregate3_result(&wild, 1), None);
    }

    #[test]
    fn only_the_magic_value_in_a_whole_word_accepts() {
        let mut word = [0; 32];
        word[..4].copy_from_slice(&IS_VALID_SIGNATURE);
        assert!(accepts(&word));
        assert!(accepts(&[&word[..], b"more"].concat()));
        assert!(!accepts(&word[..31]));
        assert!(!accepts(&IS_VALID_SIGNATURE));
        assert!(!accepts(&[]));
        let mut dirty = word;
        dirty[31] = 1;
        assert!(!accepts(&dirty));
        // Right-aligned, as a number would be.
        word.rotate_right(28);
        assert!(!accepts(&word));
    }

    #[test]
    fn a_wrapped_signature_is_taken_in_its_one_encoding() {
        let encoded = unhex(&[
            "000000000000000000000000fafafafafafafafafafafafafafafafafafafafa",
            "0000000000000000000000000000000000000000000000000000000000000060",
            "00000000000000000000000000000000000000000000000000000000000000a0",
            "0000000000000000000000000000000000000000000000000000000000000002",
            "c0de000000000000000000000000000000000000000000000000000000000000",
            "0000000000000000000000000000000000000000000000000000000000000001",
            "5500000000000000000000000000000000000000000000000000000000000000",
        ]);
        let marked = |encoded: &[u8]| [encoded, &WRAPPER_MAGIC].concat();
        let read =
            Wrapped { factory: Address::from_bytes([0xfa; 20]), calldata: &[0xc0, 0xde], signature: &[0x55] };
        assert_eq!(Signature::read(&marked(&encoded)), Signature::Wrapped(read));
        assert_eq!(Signature::read(&encoded), Signature::Plain(&encoded));
        assert_eq!(Signature::read(&[]), Signature::Plain(&[]));
        for length in 0..encoded.len() {
            assert_eq!(Signature::read(&marked(&encoded[..length])), Signature::Malformed, "{length} bytes");
        }
        // Dirty high bytes of the address, a wild offset, a wild length, dirty padding, a trailing byte.
        for (at, byte) in [(0, 1), (32, 0xff), (63, 0x61), (3 * 32, 0xff), (3 * 32 + 31, 33), (5 * 32 - 1, 1)]
        {
            let mut changed = encoded.clone();
            changed[at] = byte;
            assert_eq!(Signature::read(&marked(&changed)), Signature::Malformed, "byte {at}");
        }
        assert_eq!(Signature::read(&marked(&[&encoded[..], &[0]].concat())), Signature::Malformed);
    }
}
