//! The plot of a scenario's answers: the table `plot`.

use super::case::Values;
use super::key::{KEYS, Key};
use super::measure::{MEASURES, Measure};
use super::trial::Answer;
use crate::report::{Axis, Figure, Mark, Panel, Scale, Series, Style};
use model::text::nearest;
use std::collections::BTreeMap;

/// A figure of answers: a panel for each measure, a line for each combination of the series' values.
#[derive(Clone, Debug)]
pub struct Plot {
    x: Along,
    y: Vec<&'static Measure>,
    series: Vec<&'static str>,
    x_scale: Option<Scale>,
    /// The measures with a logarithmic axis.
    log_y: Vec<String>,
}

/// The quantity along the x axis.
#[derive(Clone, Copy, Debug)]
enum Along {
    Parameter(&'static str),
    Measure(&'static Measure),
}

type Wrong = (&'static str, String);

impl Plot {
    /// Reads the keys of the table `plot`.
    pub(super) fn read(keys: &BTreeMap<String, Vec<String>>, values: &Values) -> Result<Self, Wrong> {
        let get = |name: &str| keys.get(name).cloned().unwrap_or_default();
        let [x] = get("plot.x").try_into().map_err(|_| {
            ("plot.x", "a plot has one parameter or measure along x; write x = \"workload.rate\"".to_owned())
        })?;
        let measure =
            |name: &String| Measure::named(name).ok_or_else(|| ("plot.y", no_such(name, "measure", &measures())));
        let y: Vec<&Measure> = get("plot.y").iter().map(measure).collect::<Result<_, _>>()?;
        if y.is_empty() {
            return Err(("plot.y", "a plot needs measures; write y = [\"ttfb_s.p99\", \"power_w.mean\"]".to_owned()));
        }
        let along = match (Key::named(&x), Measure::named(&x)) {
            (Some(key), _) => Along::Parameter(key.name),
            (None, Some(measure)) => Along::Measure(measure),
            (None, None) => {
                return Err(("plot.x", no_such(&x, "parameter or measure", &[parameters(), measures()].concat())));
            }
        };
        let series = series(&get("plot.series"))?;
        let shown = |varied: &str| varied == x || series.contains(&varied);
        if let Some(hidden) = values.varied().iter().map(|key| key.name).find(|name| !shown(name)) {
            let why = format!("`{hidden}` has several values, and the plot must say where; write it into series");
            return Err(("plot.series", why));
        }
        if matches!(along, Along::Parameter(_)) && !values.are_numbers(&x) {
            return Err(("plot.x", format!("the values of `{x}` are not numbers; write it into series instead")));
        }
        let (log_y, drawn) = (get("plot.log_y"), y.iter().map(|measure| measure.name).collect::<Vec<_>>());
        if let Some(wrong) = log_y.iter().find(|name| !drawn.contains(&name.as_str())) {
            return Err(("plot.log_y", no_such(wrong, "measure in y", &drawn)));
        }
        Ok(Self { x: along, y, series, x_scale: scale("plot.x_scale", &get("plot.x_scale"))?, log_y })
    }

    /// The figure of `answers`.
    pub fn figure(&self, title: &str, answers: &[Answer]) -> Figure {
        let columns = if self.y.len() == 1 { 1 } else { 2 };
        Figure::new(title, columns, self.y.iter().map(|measure| self.panel(measure, answers)).collect())
    }

    fn panel(&self, measure: &Measure, answers: &[Answer]) -> Panel {
        let mut series: Vec<Series> = Vec::new();
        for answer in answers {
            let Some(x) = self.along_x(answer) else { continue };
            let name = self.name(answer);
            let y = measure.of(&answer.found).unwrap_or(f64::NAN);
            let spread = measure.half_width(&answer.found).map(|half| (y - half, y + half));
            let mark = Mark { x, y, spread, unsettled: answer.found.unsettled() };
            match series.iter_mut().find(|series| series.name == name) {
                Some(known) => known.marks.push(mark),
                None => series.push(Series { name, marks: vec![mark], style: Style::Line }),
            }
        }
        let values: Vec<f64> = series.iter().flat_map(|series| series.marks.iter().map(|mark| mark.x)).collect();
        let scale = self.x_scale.unwrap_or_else(|| suited(&values));
        let log_y = self.log_y.iter().any(|name| name == measure.name);
        let y_scale = if log_y { Scale::Log } else { Scale::Linear };
        let x = Axis { label: self.x_label(answers), scale, ..Axis::default() };
        let y = Axis { label: measure.label.to_owned(), scale: y_scale, ..Axis::default() };
        Panel::new("", x, y, series)
    }

    fn along_x(&self, answer: &Answer) -> Option<f64> {
        match self.x {
            Along::Measure(measure) => measure.of(&answer.found),
            Along::Parameter(key) => Some(answer.case.meaning_of(key)?.along_axis()?.0),
        }
    }

    fn x_label(&self, answers: &[Answer]) -> String {
        let key = match self.x {
            Along::Measure(measure) => return measure.label.to_owned(),
            Along::Parameter(key) => key,
        };
        let unit = answers.iter().find_map(|answer| Some(answer.case.meaning_of(key)?.along_axis()?.1));
        let unit = unit.filter(|unit| !unit.is_empty()).map(|unit| format!(" ({unit})"));
        plain_name(key) + &unit.unwrap_or_default()
    }

    /// The name of the series of `answer`.
    fn name(&self, answer: &Answer) -> String {
        let part = |key: &&'static str| {
            let written = answer.case.written(key)?.to_string().replace('_', " ");
            // The words for a system or a strategy are clear without the key.
            Some(if ["system", "repartition.strategy"].contains(key) {
                written
            } else {
                format!("{} {written}", plain_name(key))
            })
        };
        let name = self.series.iter().filter_map(part).collect::<Vec<_>>().join(", ");
        if name.is_empty() { "all".to_owned() } else { name }
    }
}

/// `policy.overtake_limit` in plain words: `overtake limit`.
pub(super) fn plain_name(key: &str) -> String {
    key.rsplit('.').next().unwrap_or(key).replace('_', " ")
}

fn parameters() -> Vec<&'static str> {
    KEYS.iter().map(|key| key.name).collect()
}

fn measures() -> Vec<&'static str> {
    MEASURES.iter().map(|measure| measure.name).collect()
}

fn no_such(name: &str, what: &str, known: &[&str]) -> String {
    let near = nearest(name, known).unwrap_or_default();
    format!("there is no {what} {name:?}; write \"{near}\" (known: {})", known.join(", "))
}

fn series(names: &[String]) -> Result<Vec<&'static str>, Wrong> {
    let no_key = |name: &String| ("plot.series", no_such(name, "parameter", &parameters()));
    names.iter().map(|name| Key::named(name).map(|key| key.name).ok_or_else(|| no_key(name))).collect()
}

fn scale(key: &'static str, words: &[String]) -> Result<Option<Scale>, Wrong> {
    match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        [] => Ok(None),
        ["linear"] => Ok(Some(Scale::Linear)),
        ["log"] => Ok(Some(Scale::Log)),
        _ => Err((key, "a scale is \"linear\" or \"log\"; write one of them".to_owned())),
    }
}

/// Logarithmic for values over at least a factor of ten that are spaced more evenly by factors than by steps.
fn suited(values: &[f64]) -> Scale {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.dedup();
    let (Some(first), Some(last)) = (sorted.first(), sorted.last()) else { return Scale::Linear };
    let middle = sorted[sorted.len() / 2];
    // True if the middle value is nearer to the geometric than to the arithmetic mean of the ends.
    if *first > 0.0 && last / first >= 10.0 && middle < (first * last).sqrt() * 0.5 + (first + last) * 0.25 {
        Scale::Log
    } else {
        Scale::Linear
    }
}
