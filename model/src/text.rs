//! Placeholder for reading descriptions.
