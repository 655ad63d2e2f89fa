//! Reports in their final form: pictures and pages are well-formed, complete and self-contained.
#![allow(clippy::unwrap_used)]

use model::GroupId;
use quick_xml::events::Event;
use sim::report::{
    Axis, Cell, Column, Figure, Mark, Page, Panel, Section, Series, Style, Table, Tone, rack_picture, waking_picture,
};

/// The text of every element of this name; panics if the document is not well-formed.
fn texts(document: &str, name: &str) -> Vec<String> {
    let mut reader = quick_xml::Reader::from_str(document);
    let (mut found, mut open, mut depth) = (Vec::new(), None::<String>, 0_i32);
    loop {
        match reader.read_event().unwrap() {
            Event::Start(start) => {
                depth += 1;
                if start.name().as_ref() == name.as_bytes() {
                    open = Some(String::new());
                }
            }
            Event::End(end) => {
                depth -= 1;
                if end.name().as_ref() == name.as_bytes() {
                    found.extend(open.take());
                }
            }
            Event::Text(text) => {
                if let Some(open) = open.as_mut() {
                    open.push_str(&text.decode().unwrap());
                }
            }
            Event::GeneralRef(entity) => {
                if let Some(open) = open.as_mut() {
                    open.push_str(match &*entity.decode().unwrap() {
                        "lt" => "<",
                        "gt" => ">",
                        "amp" => "&",
                        "quot" => "\"",
                        _ => "'",
                    });
                }
            }
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0, "every element is closed");
    found
}

fn figure() -> Figure {
    let rates = [0.0625, 0.125, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0];
    let curve = |ceiling: f64| rates.map(|rate| (rate, (rate * 8.0_f64).min(ceiling)));
    let throughput = Panel {
        title: "throughput <all>".into(),
        x: Axis::log("requests a second").ticks(rates),
        y: Axis::linear("throughput (Gb/s)"),
        series: vec![
            Series::line("Pelican", curve(34.0)),
            Series::line("FP & all spinning", curve(40.0)),
            Series::reference("paper", curve(39.0)),
        ],
    };
    let spread = |(x, y): (f64, f64)| Mark { unsettled: false, x, y: y + 13.0, spread: Some((y + 12.0, y + 15.0)) };
    let latency = Panel {
        title: "TTFB".into(),
        x: Axis::log("requests a second").ticks(rates),
        y: Axis::log("time to first byte (s)"),
        series: vec![
            Series { name: "Pelican".into(), marks: curve(60.0).map(spread).to_vec(), style: Style::Line },
            Series::styled("utilisation", Style::Steps, [(0.1, 20.0), (1.0, 30.0), (8.0, 90.0)]),
            Series::line("nothing", [(1.0, f64::NAN)]),
        ],
    };
    Figure::new("Two <panels>", 2, vec![throughput, latency])
}

#[test]
fn a_figure_is_well_formed_and_names_every_series_axis_and_title() {
    let svg = figure().svg();
    let shown = texts(&svg, "text");
    let shown: Vec<&str> = shown.iter().map(|text| text.trim()).collect();
    for expected in [
        "Two <panels>",
        "throughput <all>",
        "TTFB",
        "requests a second",
        "throughput (Gb/s)",
        "time to first byte (s)",
        "Pelican",
        "FP & all spinning",
        "paper",
        "utilisation",
        "nothing",
        "0.0625",
        "8",
    ] {
        assert!(shown.contains(&expected), "{expected:?} is not among {shown:?}");
    }
    for index in 0..4 {
        assert!(svg.contains(&Tone::of_series(index).hex()), "series {index} is drawn in its colour");
    }
}

#[test]
fn the_same_figure_gives_the_same_picture() {
    assert_eq!(figure().svg(), figure().svg());
}

#[test]
fn figures_of_nothing_one_value_or_huge_values_are_drawn_all_the_same() {
    for points in [vec![], vec![(0.0, 0.0)], vec![(1e-300, 1e300), (1e300, -1e300)], vec![(f64::NAN, f64::INFINITY)]] {
        for axis in [Axis::linear("x"), Axis::log("x")] {
            let series = vec![Series::line("a", points.clone()), Series::styled("b", Style::Reference, points.clone())];
            let figure = Panel { title: "t".into(), x: axis.clone(), y: axis, series };
            assert!(!texts(&Figure::new("t", 1, vec![figure]).svg(), "text").is_empty());
        }
    }
}

#[test]
fn a_page_is_well_formed_and_stands_alone() {
    let mut table = Table::new(vec![Column::words("what", "what"), Column::numbers("ours", "ours")]);
    table.push(vec![Cell::words("a < b"), Cell::number(1234.5)]);
    table.push(vec![Cell::verdict(false, "missed"), Cell::Empty]);
    let page = Page {
        title: "Rack & report".into(),
        sections: vec![
            Section::Heading("Results".into()),
            Section::Words("\u{7}words".into()),
            Section::Facts(vec![("seeds".into(), "1, 2".into())]),
            Section::Verbatim("larder simulate x.toml --set 'a=\"b\"'".into()),
            Section::Table(table),
            Section::Figure(figure()),
            Section::Picture(figure().svg()),
        ],
    };
    let html = page.html();
    assert_eq!(texts(&html, "h1"), ["Rack & report"]);
    assert_eq!(texts(&html, "td"), ["a < b", "1,234", "missed", "-"]);
    assert_eq!(texts(&html, "pre"), ["larder simulate x.toml --set 'a=\"b\"'"]);
    assert_eq!(texts(&html, "p"), ["?words"]);
    assert_eq!(texts(&html, "title").len(), 3, "the page's and two pictures'");
    for outside in ["src=", "href=", "url(", "@import", "<script"] {
        assert!(!html.contains(outside), "{outside} refers to something elsewhere");
    }
}

#[test]
fn a_rack_is_drawn_with_every_drive_class_and_the_marked_group() {
    for (name, text) in model::text::SHIPPED {
        let spec = model::text::parse(text, name).unwrap();
        let layout = engine::layout::synthesise(&spec).unwrap();
        let svg = rack_picture(&spec, &layout, GroupId(0));
        let shown = texts(&svg, "text").join("|");
        assert!(shown.contains(&format!("{name}: {} drives", spec.drives.len())), "{shown}");
        for class in 0..layout.classes.len() {
            assert!(shown.contains(&format!("class {class}: {} groups", layout.classes[class].len())), "{shown}");
            assert!(svg.contains(&Tone::of_series(class).hex()));
        }
        let marked = layout.groups[0].drives.len();
        assert!(shown.contains(&format!("its {marked} drives")), "{shown}");
        // A cell for each drive and line of the legend, and an outline for each marked cell.
        let legend = layout.classes.len() + 1 + usize::from(!layout.spares.is_empty());
        let paper = 1;
        let cells = spec.drives.len() + legend + marked + 1 + paper;
        assert_eq!(svg.matches("<rect").count(), cells, "{name}");
    }
}

#[test]
fn a_drive_without_power_control_spins_in_both_pictures_of_a_rack() {
    let (name, text) = model::text::SHIPPED.into_iter().find(|(name, _)| *name == "nas8").unwrap();
    let text = text.replacen("[[drives]]", "[[drives]]\npower = \"none\"", 1);
    let spec = model::text::parse(&text, name).unwrap();
    let layout = engine::layout::synthesise(&spec).unwrap();
    let members = &layout.groups[0].drives;
    let awake = members.len() + usize::from(!members.contains(&model::DriveId(0)));
    let svg = waking_picture(&spec, &layout, GroupId(0));
    let shown = texts(&svg, "text").join("|");
    let words = format!("{awake} drives spin");
    assert!(shown.contains("1 drive spins, all drives draw") && shown.contains(&words), "{shown}");
    let cells = svg.matches(&Tone::of_series(1).hex()).count() - dark_rules(&svg);
    assert_eq!(cells, 1 + awake, "{svg}");
}

/// The number of times that the style sheet names the colour of drives that spin.
fn dark_rules(svg: &str) -> usize {
    let sheet = svg.split("<style>").nth(1).unwrap().split("</style>").next().unwrap();
    sheet.matches(&Tone::of_series(1).hex()).count()
}
