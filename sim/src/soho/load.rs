//! Loads: the three applications of SOHO's section II, and the synthetic traces of its section IV-D, made from their
//! descriptions.
//!
//! Each datum belongs to one request: it is written once, and read at most once. An application downloads raw data in
//! spikes, reads it into memory in the order of arrival, and writes results meanwhile. The draws follow the text. DNA
//! sequences (DSA) have evenly spaced spikes of similar size with one exception. Seismic waves (SWA) have highly
//! regular spikes, and results that are far smaller than the input. Geographic information (GIA) has spikes at any time
//! and of any height, and writes dominate. The sizes of requests, spikes and results are our choice, except for their
//! ratios: GIA's requests are 26.9 % and 64.9 % larger than SWA's and DSA's. All three write 16 GiB of raw data, the
//! size of GIA's batch.
//!
//! Invariant: data is read only after it was written.

use super::PAGE_BYTES;
use model::{Rng, Time};
use std::time::Duration;

/// A request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// The earliest time at which it is sent.
    pub at: Time,
    /// The datum.
    pub datum: u32,
    /// True for a read, false for a write.
    pub is_read: bool,
}

/// Requests in the order in which clients send them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// The requests.
    pub requests: Vec<Request>,
    /// The pages of each datum.
    pub pages: Vec<u32>,
    /// True if data is scattered over a disk, instead of stored consecutively.
    pub is_scattered: bool,
}

/// An application of section II.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// DNA sequences analysis.
    Dsa,
    /// Seismic wave analysis.
    Swa,
    /// Geographic information analysis.
    Gia,
}

/// The raw data that an application writes in a run, which is GIA's batch.
const RAW_BYTES: u64 = 16 << 30;
/// The mean request size of DSA. The text gives only ratios.
const DSA_REQUEST_BYTES: u64 = 64 << 10;
/// The time span of all spikes.
const SPAN: Duration = Duration::from_hours(2);
/// The time from the end of a spike to the reading of its data.
const PAUSE: Duration = Duration::from_mins(1);
/// The number of GIA's spikes.
const GIA_SPIKES: u64 = 10;

/// A spike: its time, and its weight among all spikes.
struct Spike {
    at: Time,
    weight: u64,
}

impl Application {
    /// All applications, in the order of the text.
    pub const ALL: [Self; 3] = [Self::Dsa, Self::Swa, Self::Gia];

    /// Its abbreviation.
    pub fn words(self) -> &'static str {
        match self {
            Self::Dsa => "DSA",
            Self::Swa => "SWA",
            Self::Gia => "GIA",
        }
    }

    /// The mean size of its requests if DSA's have `dsa_bytes`: section IV-B.
    fn request_bytes(self, dsa_bytes: u64) -> u64 {
        match self {
            Self::Dsa => dsa_bytes,
            Self::Swa => dsa_bytes * 1649 / 1269,
            Self::Gia => dsa_bytes * 1649 / 1000,
        }
    }

    /// The share of raw data that is read in the run, in thousandths. GIA is "write dominant".
    fn read_permille(self) -> u64 {
        if self == Self::Gia { 250 } else { 1000 }
    }

    /// The results of read data, in thousandths of its bytes: in proportion (DSA), "several megabytes" of a batch
    /// (SWA).
    fn result_permille(self) -> u64 {
        match self {
            Self::Dsa | Self::Gia => 125,
            Self::Swa => 4,
        }
    }

    fn spikes(self, rng: &mut Rng) -> Vec<Spike> {
        let every = |count: u64, weight: &mut dyn FnMut(u64) -> u64| {
            let step = SPAN.as_nanos() as u64 / count;
            (0..count).map(|at| Spike { at: Time::from_nanos(at * step), weight: weight(at) }).collect()
        };
        match self {
            // Similar sizes, evenly spaced, "with one exception".
            Self::Dsa => every(8, &mut |at| if at == 4 { 50 } else { rng.between(95, 105) }),
            Self::Swa => every(16, &mut |_| 100),
            Self::Gia => {
                let span = SPAN.as_nanos() as u64;
                let mut spikes: Vec<Spike> = (0..GIA_SPIKES)
                    .map(|_| {
                        // Heights "vary dramatically": from 1 to 32, with each doubling equally likely.
                        let weight = (1 << rng.below(5)) * rng.between(100, 200);
                        Spike { at: Time::from_nanos(rng.below(span)), weight }
                    })
                    .collect();
                spikes.sort_by_key(|spike| spike.at);
                spikes
            }
        }
    }

    /// Its requests under `seed`. Its data and times are divided by `part`; a mean request of DSA has `scale.0 /
    /// scale.1` times its bytes.
    pub fn load(self, seed: u64, part: u64, scale: (u64, u64)) -> Load {
        let rng = &mut Rng::for_thing(seed, self as u64);
        let mean = self.request_bytes(DSA_REQUEST_BYTES * scale.0 / scale.1);
        let spikes = self.spikes(rng);
        let all: u64 = spikes.iter().map(|spike| spike.weight).sum();
        let mut load = Load::default();
        for Spike { at, weight } in spikes {
            let at = Time::from_nanos(at.as_nanos() / part);
            let bytes = (u128::from(RAW_BYTES / part) * u128::from(weight) / u128::from(all)) as u64;
            self.spike(&mut load, at, (bytes, mean, PAUSE / part as u32), rng);
        }
        load
    }

    /// One spike: raw data is written, then read; results are written in proportion to the bytes read.
    fn spike(self, load: &mut Load, at: Time, (bytes, mean, pause): (u64, u64, Duration), rng: &mut Rng) {
        let first = load.pages.len() as u32;
        let mut left = bytes;
        while left > 0 {
            let datum = load.write(at, drawn(mean, rng));
            left = left.saturating_sub(u64::from(load.pages[datum as usize]) * PAGE_BYTES);
        }
        let raw = first..load.pages.len() as u32;
        let (mut read, mut owed, mut size) = (0, 0, drawn(mean, rng));
        for datum in raw {
            let pages = u64::from(load.pages[datum as usize]);
            if read >= bytes * self.read_permille() / 1000 {
                break;
            }
            read += pages * PAGE_BYTES;
            load.requests.push(Request { at: at + pause, datum, is_read: true });
            owed += pages * PAGE_BYTES * self.result_permille() / 1000;
            while owed >= u64::from(size) * PAGE_BYTES {
                owed -= u64::from(size) * PAGE_BYTES;
                load.write(at + pause, size);
                size = drawn(mean, rng);
            }
        }
    }
}

/// The pages of a request, drawn evenly from half of the mean to one and a half of it.
fn drawn(mean: u64, rng: &mut Rng) -> u32 {
    let bytes = rng.between(mean / 2, mean + mean / 2);
    (bytes + PAGE_BYTES / 2).div_euclid(PAGE_BYTES).max(1) as u32
}

impl Load {
    /// A synthetic trace (section IV-D): this number of requests at random places of a disk. Each is a write or a read
    /// of written data with equal chance.
    pub fn synthetic(seed: u64, count: u32, mean_bytes: u64) -> Self {
        let rng = &mut Rng::for_thing(seed, mean_bytes);
        let mut load = Self { is_scattered: true, ..Self::default() };
        let pages = |rng: &mut Rng| if mean_bytes <= PAGE_BYTES { 1 } else { drawn(mean_bytes, rng) };
        for _ in 0..count {
            let written = load.pages.len() as u64;
            if written == 0 || rng.below(2) == 0 {
                let pages = pages(rng);
                load.write(Time::ZERO, pages);
            } else {
                let datum = rng.below(written) as u32;
                load.requests.push(Request { at: Time::ZERO, datum, is_read: true });
            }
        }
        load
    }

    /// This number of bytes of data, written and not read: the input of a move.
    pub fn written(seed: u64, bytes: u64) -> Self {
        let rng = &mut Rng::for_thing(seed, bytes);
        let mut load = Self::default();
        let mut left = bytes / PAGE_BYTES;
        while left > 0 {
            let pages = drawn(DSA_REQUEST_BYTES, rng).min(left as u32);
            load.write(Time::ZERO, pages);
            left -= u64::from(pages);
        }
        load
    }

    fn write(&mut self, at: Time, pages: u32) -> u32 {
        let datum = self.pages.len() as u32;
        self.pages.push(pages);
        self.requests.push(Request { at, datum, is_read: false });
        datum
    }

    /// The written bytes.
    pub fn written_bytes(&self) -> u64 {
        self.pages.iter().map(|pages| u64::from(*pages) * PAGE_BYTES).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mean_bytes(load: &Load) -> f64 {
        load.written_bytes() as f64 / load.pages.len() as f64
    }

    #[test]
    fn requests_have_the_ratios_of_the_text_and_nothing_is_read_before_it_is_written() {
        let loads = Application::ALL.map(|application| application.load(1, 16, (1, 1)));
        let [dsa, swa, gia] = [0, 1, 2].map(|at| mean_bytes(&loads[at]));
        assert!((gia / swa - 1.269).abs() < 0.02 && (gia / dsa - 1.649).abs() < 0.02, "{dsa} {swa} {gia}");
        for load in &loads {
            let mut written = vec![false; load.pages.len()];
            let mut read = written.clone();
            for request in &load.requests {
                let datum = request.datum as usize;
                if request.is_read {
                    assert!(written[datum] && !std::mem::replace(&mut read[datum], true), "read once");
                } else {
                    assert!(!std::mem::replace(&mut written[datum], true), "written once");
                }
            }
        }
    }

    #[test]
    fn geographic_batches_are_of_16_gb_and_mostly_written() {
        let load = Application::Gia.load(3, 1, (1, 1));
        let gib = load.written_bytes() as f64 / (1_u64 << 30) as f64;
        assert!((16.0..17.0).contains(&gib), "{gib}");
        let reads = load.requests.iter().filter(|request| request.is_read).count();
        assert!(reads * 3 < load.requests.len() - reads, "{reads}");
    }

    #[test]
    fn synthetic_requests_have_their_mean() {
        for kib in [4, 40, 400] {
            let load = Load::synthetic(1, 20_000, kib << 10);
            assert!((mean_bytes(&load) / (kib << 10) as f64 - 1.0).abs() < 0.02, "{kib}");
        }
        assert_eq!(Load::written(1, 1 << 30).written_bytes(), 1 << 30);
    }
}
