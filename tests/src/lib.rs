//! Whole-system tests of Highwater; the tests are in `tests/`.
