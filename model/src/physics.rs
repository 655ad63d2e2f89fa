//! Placeholder for the physics.
