//! Wire schema, validated identifiers, ordered prefixes and limits.
