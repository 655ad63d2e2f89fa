//! The measures of a point by name, with units for readers.

use super::trial::Found;
use crate::copying::CopyPoint;
use crate::fill::FillPoint;
use crate::point::Point;
use crate::repartition::Repartitioned;

/// A measure of a point.
#[derive(Debug)]
pub struct Measure {
    /// Its name in JSON: `ttfb_s.p99`.
    pub name: &'static str,
    /// The label for table heads and axes, with the unit.
    pub label: &'static str,
    /// The factor from the point's unit to the label's unit.
    scale: f64,
    /// The values for a serving rack, a repartition job, a filled rack and a copy; `None` if that kind has no such
    /// measure.
    of_point: fn(&Point) -> Option<f64>,
    of_job: fn(&Repartitioned) -> Option<f64>,
    of_fill: fn(&FillPoint) -> Option<f64>,
    of_copy: fn(&CopyPoint) -> Option<f64>,
    half_width: fn(&Point) -> Option<f64>,
    half_width_of_fill: fn(&FillPoint) -> Option<f64>,
    /// True if the measure is in the short table.
    pub short: bool,
}

impl Measure {
    /// The measure of this name.
    pub fn named(name: &str) -> Option<&'static Self> {
        MEASURES.iter().find(|measure| measure.name == name)
    }

    /// Its value in the unit of the label; `None` if nothing was counted.
    pub fn of(&self, found: &Found) -> Option<f64> {
        self.exact(found).map(|value| value * self.scale)
    }

    /// Half the width of its 95 % confidence interval over the seeds, if known.
    pub fn half_width(&self, found: &Found) -> Option<f64> {
        let half = match found {
            Found::Service(point) => (self.half_width)(point),
            Found::Fill(filled) => (self.half_width_of_fill)(filled),
            Found::Repartition(_) | Found::Copy(_) => None,
        };
        half.map(|value| value * self.scale)
    }

    /// Its value in the point, in the unit of its name.
    pub fn exact(&self, found: &Found) -> Option<f64> {
        match found {
            Found::Service(point) => (self.of_point)(point),
            Found::Repartition(job) => (self.of_job)(job),
            Found::Fill(filled) => (self.of_fill)(filled),
            Found::Copy(copied) => (self.of_copy)(copied),
        }
    }
}

const fn measure(name: &'static str, label: &'static str, scale: f64, of_point: fn(&Point) -> Option<f64>) -> Measure {
    Measure {
        name,
        label,
        scale,
        of_point,
        of_job: |_| None,
        of_fill: |_| None,
        of_copy: |_| None,
        half_width: |_| None,
        half_width_of_fill: |_| None,
        short: false,
    }
}

const fn filled(
    name: &'static str,
    label: &'static str,
    scale: f64,
    of_fill: fn(&FillPoint) -> Option<f64>,
    half_width_of_fill: fn(&FillPoint) -> Option<f64>,
) -> Measure {
    Measure { of_fill, half_width_of_fill, short: true, ..measure(name, label, scale, |_| None) }
}

const fn copied(name: &'static str, label: &'static str, scale: f64, of: fn(&CopyPoint) -> Option<f64>) -> Measure {
    Measure { of_copy: of, short: true, ..measure(name, label, scale, |_| None) }
}

const fn job(name: &'static str, label: &'static str, scale: f64, of: fn(&Repartitioned) -> Option<f64>) -> Measure {
    measure(name, label, scale, |_| None).and_job(of)
}

impl Measure {
    const fn short(self) -> Self {
        Self { short: true, ..self }
    }

    /// The same measure with a value for jobs.
    const fn and_job(self, of_job: fn(&Repartitioned) -> Option<f64>) -> Self {
        Self { of_job, ..self }
    }

    const fn sure(self, half_width: fn(&Point) -> Option<f64>) -> Self {
        Self { half_width, ..self }
    }
}

/// All measures, in the order of tables. Measures of a rebuild have no value without a failing drive, and those of a
/// job none without a job.
pub const MEASURES: &[Measure] = &[
    job("hours", "time (h)", 1.0, |job| Some(job.hours)).short(),
    job("model_hours", "the paper's model (h)", 1.0, |job| job.model_hours).short(),
    job("better_model_hours", "better model (h)", 1.0, |job| job.better_model_hours).short(),
    job("simulated_hours", "dry run (h)", 1.0, |job| Some(job.simulated_hours)).short(),
    job("bound_hours", "lower bound (h)", 1.0, |job| job.bound_hours).short(),
    job("switching_hours", "switching (h)", 1.0, |job| Some(job.switching_hours)).short(),
    job("switches", "switches", 1.0, |job| Some(job.switches)).short(),
    job("switches_saved", "switches saved", 1.0, |job| Some(job.switches_saved)),
    job("free_rides", "piggybacks", 1.0, |job| Some(job.free_rides)),
    job("client_wakes", "wakes by clients", 1.0, |job| Some(job.client_wakes)),
    job("bytes_read", "read (TB)", 1e-12, |job| Some(job.bytes_read as f64)).short(),
    job("bytes_written", "written (TB)", 1e-12, |job| Some(job.bytes_written as f64)).short(),
    job("peak_offloaded_bytes", "most offloaded on a group (TB)", 1e-12, |job| Some(job.peak_offloaded_bytes as f64)),
    job("changes", "changes of strategy", 1.0, |job| Some(job.changes)),
    measure("throughput_bytes_per_s", "throughput (Gb/s)", 8e-9, |point| Some(point.throughput_bytes_per_s))
        .short()
        .sure(|point| point.ci95.throughput_bytes_per_s),
    measure("ttfb_s.mean", "mean TTFB (s)", 1.0, |point| point.ttfb_s.mean)
        .and_job(|job| job.ttfb_s.mean)
        .short()
        .sure(|point| point.ci95.ttfb_mean_s),
    measure("ttfb_s.p50", "median TTFB (s)", 1.0, |point| point.ttfb_s.p50).and_job(|job| job.ttfb_s.p50),
    measure("ttfb_s.p99", "p99 TTFB (s)", 1.0, |point| point.ttfb_s.p99).and_job(|job| job.ttfb_s.p99).short(),
    measure("ttfb_s.max", "max TTFB (s)", 1.0, |point| point.ttfb_s.max).and_job(|job| job.ttfb_s.max),
    measure("completion_s.mean", "mean completion (s)", 1.0, |point| point.completion_s.mean),
    measure("completion_s.p50", "median completion (s)", 1.0, |point| point.completion_s.p50),
    measure("completion_s.p99", "p99 completion (s)", 1.0, |point| point.completion_s.p99),
    measure("completion_s.max", "max completion (s)", 1.0, |point| point.completion_s.max),
    measure("service_s.mean", "mean service (s)", 1.0, |point| point.service_s.mean)
        .short()
        .sure(|point| point.ci95.service_mean_s),
    measure("service_s.p50", "median service (s)", 1.0, |point| point.service_s.p50),
    measure("service_s.p99", "p99 service (s)", 1.0, |point| point.service_s.p99),
    measure("service_s.max", "max service (s)", 1.0, |point| point.service_s.max),
    measure("reject_rate", "rejects (%)", 100.0, |point| Some(point.reject_rate))
        .and_job(|job| job.ttfb_s.mean.map(|_| job.reject_rate))
        .short()
        .sure(|point| point.ci95.reject_rate),
    measure("open_mean", "open requests", 1.0, |point| point.open_mean),
    measure("drained_after_s", "queues drained after (h)", 1.0 / 3600.0, |point| point.drained_after_s),
    measure("steady_after_s", "steady after (h)", 1.0 / 3600.0, |point| point.steady_after_s),
    measure("wake_time_fraction", "time waking (%)", 100.0, |point| Some(point.wake_time_fraction)).short(),
    measure("spin_ups_per_drive_year", "spin-ups per drive and year", 1.0, |point| Some(point.spin_ups_per_drive_year))
        .short(),
    measure("rated_starts_per_drive_year", "rated spin-ups per drive and year", 1.0, |point| {
        Some(point.rated_starts_per_drive_year)
    })
    .short(),
    measure("tb_per_drive_year", "TB per drive and year", 1.0, |point| Some(point.tb_per_drive_year)).short(),
    measure("power_w.mean", "mean power (W)", 1.0, |point| Some(point.power_w.mean)).short(),
    measure("power_w.peak", "peak power (W)", 1.0, |point| Some(point.power_w.peak)).short(),
    measure("rebuild.rebuild_s", "rebuild (h)", 1.0 / 3600.0, |point| point.rebuild?.rebuild_s).short(),
    measure("rebuild.in_class.ttfb_s.mean", "mean TTFB in the class (s)", 1.0, |point| {
        point.rebuild?.in_class.ttfb_s.mean
    })
    .short(),
    measure("rebuild.in_class.ttfb_s.p99", "p99 TTFB in the class (s)", 1.0, |point| {
        point.rebuild?.in_class.ttfb_s.p99
    }),
    measure("rebuild.elsewhere.ttfb_s.mean", "mean TTFB elsewhere (s)", 1.0, |point| {
        point.rebuild?.elsewhere.ttfb_s.mean
    })
    .short(),
    measure("rebuild.elsewhere.ttfb_s.p99", "p99 TTFB elsewhere (s)", 1.0, |point| point.rebuild?.elsewhere.ttfb_s.p99),
    filled("utilisation", "used (%)", 100.0, |rack| Some(rack.utilisation), |rack| rack.utilisation_ci95),
    filled(
        "over_clipped",
        "over clipped drives (%)",
        100.0,
        |rack| Some(rack.over_clipped),
        |rack| rack.over_clipped_ci95,
    ),
    filled("least_used", "least used drive (%)", 100.0, |rack| Some(rack.least_used), |_| None),
    filled("blobs", "blobs", 1.0, |rack| Some(rack.blobs), |_| None),
    copied("seconds", "time (s)", 1.0, |copy| Some(copy.seconds)),
    copied("wakes", "wakes", 1.0, |copy| Some(copy.wakes)),
    copied("starts", "drive starts", 1.0, |copy| Some(copy.starts)),
    copied("ahead_bytes", "read ahead (GB)", 1e-9, |copy| Some(copy.ahead_bytes)),
    copied("others", "reads of others", 1.0, |copy| Some(copy.others)),
    copied("others_mean_s", "their mean TTFB (s)", 1.0, |copy| copy.others_mean_s),
    copied("others_p99_s", "their p99 TTFB (s)", 1.0, |copy| copy.others_p99_s),
    copied("others_max_s", "their max TTFB (s)", 1.0, |copy| copy.others_max_s),
];
