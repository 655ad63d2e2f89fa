//! The notation of `larder.toml`: quantities with units, fractions, and the place of a key in the text.
//!
//! Invariant: no value is clamped, and only shares are rounded, to thousandths; a value out of range is refused with
//! what to write instead.

use engine::{IdleTimeout, Weighing};
use model::text::{duration as parse_duration, nearest, size as parse_size};
use s3::HostDomain;
use serde::de::{Deserialize, Deserializer, Error};
use std::fmt::Write;
use std::time::Duration;
use toml::Value;
use toml::de::DeTable;

/// The fastest an emulated rack may run: a day in less than a second.
const TIME_SCALE_MAX: u32 = 100_000;

/// A size with its unit, or plain bytes; also for a key without a default, as the two functions that follow.
pub fn size<'de, D: Deserializer<'de>, T: From<u64>>(from: D) -> Result<T, D::Error> {
    as_size(&Value::deserialize(from)?).map(T::from).map_err(D::Error::custom)
}

/// A duration with its unit.
pub fn duration<'de, D: Deserializer<'de>, T: From<Duration>>(from: D) -> Result<T, D::Error> {
    as_duration(&Value::deserialize(from)?).map(T::from).map_err(D::Error::custom)
}

/// A duration above 0.
pub fn some_time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    match duration(from)? {
        Duration::ZERO => Err(D::Error::custom("must be above 0; write a duration such as \"10 s\"")),
        some => Ok(some),
    }
}

/// A duration, or `"never"`.
pub fn duration_or_never<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    let value = Value::deserialize(from)?;
    if value.as_str() == Some("never") {
        return Ok(None);
    }
    as_duration(&value).map(Some).map_err(|error| D::Error::custom(format!("{error}, or \"never\"")))
}

/// A duration above 0, or `"never"`.
pub fn positive_duration_or_never<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Duration>, D::Error> {
    match duration_or_never(from)? {
        Some(Duration::ZERO) => {
            Err(D::Error::custom("must be above 0; write a duration such as \"90 d\", or \"never\""))
        }
        other => Ok(other),
    }
}

/// [`duration_or_never`], for the idle time before a group of drives sleeps.
pub fn idle_timeout<'de, D: Deserializer<'de>>(from: D) -> Result<IdleTimeout, D::Error> {
    Ok(duration_or_never(from)?.map_or(IdleTimeout::Never, IdleTimeout::After))
}

/// A domain name, for a key without a default.
pub fn some_domain<'de, D: Deserializer<'de>>(from: D) -> Result<Option<HostDomain>, D::Error> {
    let domain = Value::deserialize(from)?.as_str().and_then(HostDomain::new);
    domain
        .map(Some)
        .ok_or_else(|| D::Error::custom("is not a domain; write the name of a host such as \"s3.example.org\""))
}

/// A share from 0 to 1, in thousandths.
pub fn permille<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    let share = match Value::deserialize(from)? {
        Value::Float(share) => Some(share),
        Value::Integer(share) => Some(share as f64),
        _ => None,
    };
    match share {
        Some(share) if (0.0..=1.0).contains(&share) => Ok((share * 1000.0).round() as u32),
        _ => Err(D::Error::custom("is not a share; write a number from 0.0 to 1.0")),
    }
}

/// A whole number from 1 on.
pub fn at_least_one<'de, D: Deserializer<'de>, T: From<u32>>(from: D) -> Result<T, D::Error> {
    whole(from, u32::MAX).map(T::from)
}

/// The factor by which modelled time runs faster than wall time.
pub fn time_scale<'de, D: Deserializer<'de>>(from: D) -> Result<u32, D::Error> {
    whole(from, TIME_SCALE_MAX)
}

fn whole<'de, D: Deserializer<'de>>(from: D, max: u32) -> Result<u32, D::Error> {
    let number = Value::deserialize(from)?.as_integer().and_then(|number| u32::try_from(number).ok());
    number
        .filter(|number| (1..=max).contains(number))
        .ok_or_else(|| D::Error::custom(format!("is not such a number; write a whole number from 1 to {max}")))
}

fn as_size(value: &Value) -> Result<u64, String> {
    match value {
        Value::Integer(bytes) => {
            u64::try_from(*bytes).map_err(|_| "a size is not negative; write 0 or more".to_owned())
        }
        Value::String(text) => parse_size(text),
        _ => Err("is not a size; write one such as \"200 GB\"".to_owned()),
    }
}

fn as_duration(value: &Value) -> Result<Duration, String> {
    match value {
        Value::String(text) => parse_duration(text),
        Value::Integer(number) => Err(format!("{number} has no unit; write \"{number} s\" if seconds are meant")),
        _ => Err("is not a duration; write one such as \"45 s\" or \"5 min\"".to_owned()),
    }
}

/// u as it is written: its meaning depends on another key, so it is judged when all are known.
#[derive(Clone, Debug, PartialEq)]
pub struct OvertakeLimit(Value);

impl<'de> Deserialize<'de> for OvertakeLimit {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Value::deserialize(from).map(Self)
    }
}

impl OvertakeLimit {
    /// u in bytes, operations or milliseconds; `None` if it is not written in that unit.
    pub fn in_unit_of(&self, weighing: Weighing) -> Option<u64> {
        match weighing {
            Weighing::Bytes => as_size(&self.0).ok(),
            Weighing::Operations => self.0.as_integer().and_then(|count| u64::try_from(count).ok()),
            Weighing::Time | Weighing::ServiceTime if self.0.as_integer() == Some(0) => Some(0),
            Weighing::Time | Weighing::ServiceTime => {
                as_duration(&self.0).ok().and_then(|span| u64::try_from(span.as_millis()).ok())
            }
        }
    }
}

/// A TOML error in plain words: an unknown key with the nearest one that exists, and `value` named where it is refused.
pub fn plainly(message: &str, value: &str) -> String {
    if message.contains("socket address") {
        let what = "is not an address to listen on; write one such as \"127.0.0.1:9000\", with numbers for the host";
        return format!("{} {what}", shown(value));
    }
    if message.starts_with("is no") {
        return format!("{} {}", shown(value), message.trim_end());
    }
    let quoted: Vec<&str> = message.split('`').skip(1).step_by(2).collect();
    let Some((wrong, known)) = quoted.split_first().filter(|_| message.starts_with("unknown field")) else {
        return message.trim_end().replace('\n', "; ");
    };
    let mut plain = format!("there is no key `{wrong}` here");
    if let Some(near) = nearest(wrong, known) {
        let _ = write!(plain, "; write `{near}`, or remove the line (keys: {})", known.join(", "));
    }
    plain
}

/// A value as it is in the file, shortened if it is long.
fn shown(value: &str) -> String {
    let most = 60;
    let first = value.lines().next().unwrap_or_default();
    if first.chars().count() <= most && first.len() == value.len() {
        return format!("`{value}`");
    }
    format!("`{}...`", first.chars().take(most).collect::<String>())
}

/// Line and column, each from 1, of the byte at `offset`.
pub fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
}

/// The offset of the value of `key` (`table.key`) in `text`, or of its table; `None` if neither is there.
pub fn find(text: &str, key: &str) -> Option<usize> {
    let root = DeTable::parse(text).ok()?;
    let (first, rest) = key.split_once('.').unwrap_or((key, ""));
    let value = root.get_ref().get(first)?;
    let inner = value.get_ref().as_table().and_then(|table| table.get(rest));
    Some(inner.unwrap_or(value).span().start)
}

/// `template` with the line of each key in `set` (`key` or `table.key`) uncommented and set to its value. Every key
/// must be in the template.
pub fn filled_in(template: &str, set: &[(&str, String)]) -> String {
    let (mut filled, mut table, mut used) = (String::with_capacity(template.len()), "", 0);
    for line in template.lines() {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            table = name;
        }
        let key = line.strip_prefix('#').and_then(|rest| rest.split_once(" = ")).map(|(key, _)| key);
        let value =
            key.and_then(|key| set.iter().find(|(wanted, _)| is_key(wanted, table, key)).map(|(_, v)| (key, v)));
        used += usize::from(value.is_some());
        let _ = match value {
            Some((key, value)) => writeln!(filled, "{key} = {value}"),
            None => writeln!(filled, "{line}"),
        };
    }
    assert_eq!(used, set.len(), "each key that is set is in the template");
    filled
}

fn is_key(wanted: &str, table: &str, key: &str) -> bool {
    match wanted.split_once('.') {
        None => table.is_empty() && wanted == key,
        Some((in_table, name)) => in_table == table && name == key,
    }
}
