//! Running-configuration text.
