//! Objects through decoder, partitioner and encoder, and back: the same records come out, partitioned by another key.

#![allow(clippy::unwrap_used)]

mod bad_input;
mod columns;
mod help;
mod keys;
mod logical;
mod odd_records;
mod round_trips;
mod sets;
mod types;
