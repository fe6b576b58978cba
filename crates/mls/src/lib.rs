//! OpenMLS over trial state.
