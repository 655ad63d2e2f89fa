//! Formulas for the time that a job takes, before it runs: the paper's three, and more precise ones.
//!
//! All assume that the data is far larger than the buffer. The paper's formulas leave out seeks and assume that all
//! groups have the same input and the same output; the `skewed_` ones do not. This module's tests assert how close they
//! come to the cost simulation. There is no better one for OffPack: the fill of its switches depends on the remainders
//! of runs by the buffer, which only a simulation tracks.

use super::terms::{Alpha, Terms};
use alloc::vec::Vec;

/// The parameters of the formulas.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Question {
    /// S_D: bytes of input.
    pub data_bytes: u64,
    /// S_M: bytes of buffer; above 0.
    pub memory_bytes: u64,
    /// K: groups; above 0.
    pub groups: usize,
    /// Output over input.
    pub alpha: Alpha,
    /// The costs of the hardware.
    pub terms: Terms,
}

impl Question {
    /// The paper's Table III: 100 TB, 8 GB, 12 groups, alpha 1.
    pub const PAPER: Self = Self {
        data_bytes: 100_000_000_000_000,
        memory_bytes: 8_000_000_000,
        groups: 12,
        alpha: Alpha::ONE,
        terms: Terms::PAPER,
    };

    fn output(&self) -> f64 {
        self.data_bytes as f64 * self.alpha.as_f64()
    }

    fn read_s(&self, bytes: f64) -> f64 {
        bytes / self.terms.read_bytes_per_s as f64
    }

    fn write_s(&self, bytes: f64) -> f64 {
        bytes / self.terms.write_bytes_per_s as f64
    }

    fn switch_s(&self) -> f64 {
        self.terms.switch.as_secs_f64()
    }

    fn seek_s(&self) -> f64 {
        self.terms.seek.as_secs_f64()
    }

    /// The number of times that the output fills the buffer.
    fn fills(&self) -> f64 {
        assert!(self.memory_bytes > 0, "there is a buffer");
        self.output() / self.memory_bytes as f64
    }

    /// T_r(S_D) + T_w(a S_D): the time that every strategy takes for reading all input and writing all output once.
    fn once_s(&self) -> f64 {
        self.read_s(self.data_bytes as f64) + self.write_s(self.output())
    }
}

/// Formula (1), in seconds.
pub fn baseline_s(question: &Question) -> f64 {
    let output = question.alpha.output_of(question.data_bytes);
    let fills = output.div_ceil(question.memory_bytes) as f64;
    question.once_s() + question.switch_s() * question.groups as f64 * fills
}

/// Formula (6), in seconds.
pub fn buffpack_s(question: &Question) -> f64 {
    assert!(question.groups > 0, "a job needs a group");
    let others = question.groups as f64 - 1.0;
    question.once_s() + question.switch_s() * question.output() * others / (2.0 * question.memory_bytes as f64)
}

/// Formula (7), in seconds.
pub fn offpack_s(question: &Question) -> f64 {
    assert!(question.groups > 0 && question.memory_bytes > 0, "a job needs a group, and memory");
    let groups = question.groups as f64;
    let output = question.output();
    question.read_s((groups - 1.0) / groups * output + question.data_bytes as f64)
        + question.write_s((2.0 * groups - 1.0) / groups * output)
        + question.switch_s() * output / question.memory_bytes as f64
}

/// The distribution of the input and of the output over the groups: fractions that sum to 1, one for each group.
#[derive(Clone, Copy, Debug)]
pub struct Skew<'a> {
    /// The part of the input that is stored on each group (q).
    pub input: &'a [f64],
    /// The part of the output that is for each group (p).
    pub output: &'a [f64],
}

impl Skew<'_> {
    fn assert_valid(&self, groups: usize) {
        for parts in [self.input, self.output] {
            assert_eq!(parts.len(), groups, "a part for every group");
            let sum: f64 = parts.iter().sum();
            assert!((0.999..1.001).contains(&sum), "the parts sum to 1, not to {sum}");
        }
    }
}

/// [`baseline_s`] under skew, in seconds: it adds only the rounds that end in the middle of a group's input.
///
/// A full buffer costs K switches for any composition, and reading resumes where the round ended. A round takes a seek
/// for each group that is written, and one to read.
pub fn skewed_baseline_s(question: &Question) -> f64 {
    let groups = question.groups as f64;
    baseline_s(question) + question.switch_s() * groups + question.seek_s() * question.fills() * (groups + 1.0)
}

/// [`buffpack_s`] for input and output that are skewed, in seconds.
///
/// While all groups have input, every group is visited when the bytes buffered for it reach the same threshold. Between
/// visits it has half of that on average, and all groups together fill the buffer, so the threshold is `2 S_M / K`.
/// While a group is awake, its own share p of the input read there is output for it again, so it is visited `p (1 - p)`
/// times for each threshold of output. Equal shares make this formula (6).
///
/// Writing to a group makes room, and the same amount is then read there: a group's input decreases in proportion to p.
/// So groups run out of input one after the other. A visit to a group without input is worth less, since nothing is
/// read there, and so waits until more is buffered: `1 + w / (alpha r)` times as much. It makes room that the next
/// visit must use, which is to a group that has input. So visits come in rounds, each with one visit that fills the
/// buffer and at most one to a group without input. The formula sums the phases between the times at which groups run
/// out of input. A visit takes two seeks: one to write and one to read.
pub fn skewed_buffpack_s(question: &Question, skew: Skew<'_>) -> f64 {
    skew.assert_valid(question.groups);
    let mut left: Vec<f64> = skew.input.iter().map(|part| part * question.output()).collect();
    // Less than a millionth of the output counts as rounding error.
    let crumb = question.output() / 1e6;
    let mut visits = 0.0;
    while left.iter().any(|bytes| *bytes > crumb) {
        let reads = |group: &usize| left[*group] > crumb;
        let visits_of = |group: usize| skew.output[group] * (1.0 - skew.output[group]);
        let reading: Vec<usize> = (0..question.groups).filter(reads).collect();
        let own: f64 = reading.iter().map(|group| visits_of(*group)).sum();
        let falls: f64 = reading.iter().map(|group| skew.output[*group]).sum();
        let drained: Vec<f64> =
            (0..question.groups).filter(|group| !reads(group)).map(|group| skew.output[group]).collect();
        // If there is no output for the groups that have input, they are all read at the same rate.
        let part = |group: usize| if falls > 0.0 { skew.output[group] / falls } else { 1.0 / reading.len() as f64 };
        let until = reading.iter().map(|group| left[*group] / part(*group).max(1e-12)).fold(f64::INFINITY, f64::min);
        visits += until * visits_per_byte(question, own, &drained, reading.len());
        for group in reading.iter().copied() {
            left[group] -= part(group) * until;
        }
    }
    question.once_s() + (question.switch_s() + 2.0 * question.seek_s()) * visits
}

/// Visits for each byte of output while `reading` groups have input; `own` is the part of the output that is written at
/// their visits, and `drained` has the share of each of the other groups.
///
/// If a round has an output of X, a group with input is written `own X` at a visit and has half of that buffered on
/// average. A group without input, with a share p and a visit every n rounds, has p X, 2 p X, up to n p X buffered at
/// the ends of rounds: `p X (n + 1) / 2` on average. The sum over all groups fills the buffer, which yields X.
fn visits_per_byte(question: &Question, own: f64, drained: &[f64], reading: usize) -> f64 {
    assert!(reading > 0 && reading + drained.len() == question.groups, "some groups have input");
    let higher = 1.0 + question.read_s(1.0) / question.write_s(question.alpha.as_f64());
    let rounds = rounds_between_visits(drained, higher * own);
    let buffered: f64 = drained.iter().zip(&rounds).map(|(part, rounds)| part * (rounds + 1.0)).sum();
    let visits_per_round = 1.0 + rounds.iter().map(|rounds| 1.0 / rounds).sum::<f64>();
    visits_per_round * (buffered + reading as f64 * own) / (2.0 * question.memory_bytes as f64)
}

/// The rounds from one visit to the next, for groups with these parts of a round's output: the fewest that bring its
/// part to a threshold that is common to all. The threshold is `least`, or the one at which at most one of the groups
/// is due in a round. A group with a large part of each round's output passes the threshold by far, so the others wait
/// less.
fn rounds_between_visits(parts: &[f64], least: f64) -> Vec<f64> {
    const EVEN: f64 = 1e-9;
    let rounds = |part: &f64, threshold: f64| ((threshold / part.max(1e-12) - EVEN).max(0.0) as u64 + 1) as f64;
    let due = |threshold: f64| parts.iter().map(|part| 1.0 / rounds(part, threshold)).sum::<f64>();
    let (mut low, mut threshold) = (least, least);
    if due(least) > 1.0 + EVEN {
        threshold = least + 2.0 * parts.iter().sum::<f64>();
        for _ in 0..64 {
            let middle = f64::midpoint(low, threshold);
            if due(middle) > 1.0 + EVEN { low = middle } else { threshold = middle }
        }
    }
    parts.iter().map(|part| rounds(part, threshold)).collect()
}

/// [`offpack_s`] for FillPack, and for input and output that are skewed, in seconds, with the switches of the first
/// phase.
///
/// Input that is read on its own destination is delivered at once: the sum of q p. The rest is offloaded and delivered
/// by `carries`, for each pair of groups. A group must be entered as often as bytes for it arrive and left as often as
/// bytes leave it, so the larger number counts: where they differ, some switches happen with an empty buffer ("the
/// buffer is more likely empty", section V-F). With equal shares it is formula (7), but for `(K - 1) / K` of the
/// switches, as long as the run of a pair is far larger than the buffer.
///
/// A full buffer takes a seek to read and one for each group to write; each piece that is offloaded takes one more to
/// be read back and one to be removed, and each visit one to deliver something. With many groups and little memory this
/// is a considerable number.
pub fn skewed_fillpack_s(question: &Question, skew: Skew<'_>) -> f64 {
    skew.assert_valid(question.groups);
    let output = question.output();
    let at_once: f64 = skew.input.iter().zip(skew.output).map(|(lies, falls)| lies * falls).sum();
    assert!((0.0..1.01).contains(&at_once), "{at_once} of the output is delivered at once");
    let offloaded = output * (1.0 - at_once);
    let carried = |on: usize, target: usize| {
        let run = output * skew.input[on] * skew.output[target];
        if on == target { 0.0 } else { carries(run / question.memory_bytes as f64) }
    };
    let all = || 0..question.groups;
    let visits_to = |group: usize| {
        let left: f64 = all().map(|target| carried(group, target)).sum();
        let entered: f64 = all().map(|on| carried(on, group)).sum();
        left.max(entered)
    };
    let visits = all().map(visits_to).sum::<f64>() + question.groups as f64;
    let others = question.groups as f64 - 1.0;
    let seeks = question.fills() * (2.0 + 3.0 * others) + visits;
    question.once_s()
        + question.read_s(offloaded)
        + question.write_s(offloaded)
        + question.switch_s() * visits
        + question.seek_s() * seeks
}

/// The number of times that a run is carried if it fills the buffer `fills` times.
///
/// It is carried once for each full buffer, and once more for the remainder, x of a buffer, which travels with the
/// remainders for other groups. Each stop adds one remainder to those of another group, and the largest sum is
/// delivered: the groups have x, 2 x, up to j x buffered, which fill the buffer when `j^2 x / 2` is 1. A stop delivers
/// half of the largest on average, so x of a buffer takes `2 / j`, the root of `2 x`, stops.
fn carries(fills: f64) -> f64 {
    const PARTS: f64 = 1e12;
    let whole = fills as u64 as f64;
    let rest = fills - whole;
    assert!((0.0..1.0).contains(&rest), "{rest} is what is left over");
    // The root, in millionths: floats have no square root without the standard library.
    let stops = ((2.0 * rest * PARTS) as u64).isqrt() as f64 / 1e6;
    whole + stops.min(1.0)
}

/// A lower bound for every strategy, in seconds, if all groups get the same output.
///
/// Only `S_M` bytes are carried over a switch. Output that was read during one visit, for the group visited h switches
/// later, is carried over h of them, or is written and read once more and carried over at least one. The groups visited
/// next are all different: of the K - 1 parts of the output read in a visit, one is carried over at least 1 switch, one
/// over 2, and so on. Each part takes the cheaper way. Reading the input n times, and keeping another part of it each
/// time, lets n parts be carried over one switch, n over two; the bound is the least over all n. Seeks are left out.
pub fn lower_bound_s(question: &Question) -> f64 {
    let bounds = (1..=question.groups).map(|passes| bound_for_passes(question, passes));
    let least = bounds.fold(f64::INFINITY, f64::min);
    assert!(least >= question.once_s(), "nothing takes less than to read and to write once");
    least
}

fn bound_for_passes(question: &Question, passes: usize) -> f64 {
    assert!(passes > 0, "the input is read");
    let part = question.output() / question.groups as f64;
    let carry_s = question.switch_s() * part / question.memory_bytes as f64;
    let offload_s = question.read_s(part) + question.write_s(part) + carry_s;
    let parts = (0..question.groups - 1).map(|rank| (carry_s * (rank / passes + 1) as f64).min(offload_s));
    question.once_s() + question.read_s(question.data_bytes as f64) * (passes - 1) as f64 + parts.sum::<f64>()
}
