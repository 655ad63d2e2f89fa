//! The network of a trial, and the policy of its engine.

use crate::links::Network;
use crate::scenario::case::Case;
use crate::scenario::value::Meaning;
use engine::{IdleTimeout, OverloadPolicy, RackPolicy, ReadPolicy, Relief, Shares, Weighing};
use model::RackSpec;

/// An error that is found when all values are known: the key, and the correct form.
pub(in crate::scenario) type Wrong = (&'static str, String);

pub(super) fn network(case: &Case) -> Network {
    Network { bytes_per_s: case.bytes_per_s("network.bytes_per_s"), shared: case.flag("network.shared") }
}

pub(super) fn policy(case: &Case, rack: &RackSpec, policy: &mut RackPolicy) -> Result<(), Wrong> {
    let scheduler = &mut policy.scheduler;
    scheduler.weighing = match case.word("policy.weighing") {
        "operations" => Weighing::Operations,
        "time" => Weighing::Time,
        "service_time" => Weighing::ServiceTime,
        _ => Weighing::Bytes,
    };
    scheduler.overtake_limit = overtake_limit(case, scheduler.weighing)?;
    scheduler.queue_depth = case.whole("policy.queue_depth") as u32;
    scheduler.wait_limit = case.span("policy.wait_limit");
    scheduler.join_in_service = case.flag("policy.join_in_service");
    scheduler.quantum = case.span("policy.quantum").unwrap_or(scheduler.quantum);
    scheduler.anticipation = case.span("policy.anticipation").unwrap_or_default();
    scheduler.overload = overload(case)?;
    let share = |key: &'static str| case.whole(key) as u32;
    scheduler.shares = Shares {
        client: share("policy.shares.client"),
        rebuild: share("policy.shares.rebuild"),
        background: share("policy.shares.background"),
    };
    if scheduler.shares == (Shares { client: 0, rebuild: 0, background: 0 }) {
        return Err(("policy.shares.client", "all shares are 0; write for example 1 for the client".to_owned()));
    }
    policy.read_policy = if case.word("policy.read_policy") == "k" { ReadPolicy::K } else { ReadPolicy::All };
    policy.idle_timeout = case.span("policy.idle_timeout").map_or(IdleTimeout::Never, IdleTimeout::After);
    let starts_per_day = case.whole_or_word("policy.starts_per_day");
    policy.starts_per_day = starts_per_day.map_or_else(|| rack.profile.starts_per_day(), |starts| starts as u32);
    Ok(())
}

fn overload(case: &Case) -> Result<OverloadPolicy, Wrong> {
    let relief = match case.word("policy.overload") {
        "shed" => Relief::Shed,
        "widen" => Relief::Widen { times: case.whole("policy.overload_times") as u32 },
        _ => return Ok(OverloadPolicy::default()),
    };
    let permille = |key: &'static str| (case.number(key) * 1_000.0).round() as u32;
    let (from_permille, until_permille) = (permille("policy.overload_from"), permille("policy.overload_until"));
    if until_permille >= from_permille {
        return Err(("policy.overload_until", "must be below policy.overload_from; write a smaller share".into()));
    }
    Ok(OverloadPolicy { relief, from_permille, until_permille })
}

fn overtake_limit(case: &Case, weighing: Weighing) -> Result<u64, Wrong> {
    let (limit, wanted) = match (weighing, case.meaning("policy.overtake_limit")) {
        (Weighing::Bytes, Meaning::Bytes(bytes)) => (Some(*bytes), ""),
        (Weighing::Operations, Meaning::Whole(operations)) => (Some(*operations), ""),
        (Weighing::Time | Weighing::ServiceTime, Meaning::Span(span)) => (u64::try_from(span.as_millis()).ok(), "less"),
        (_, Meaning::Whole(0)) => (Some(0), ""),
        (Weighing::Bytes, _) => (None, "a size such as \"500 GB\""),
        (Weighing::Operations, _) => (None, "a number such as 500"),
        (Weighing::Time | Weighing::ServiceTime, _) => (None, "a duration such as \"5 min\""),
    };
    limit.ok_or_else(|| {
        let weighing = case.word("policy.weighing");
        ("policy.overtake_limit", format!("does not fit weighing = \"{weighing}\"; write {wanted}"))
    })
}
