//! Association log rules: a pure fold of identity updates.
