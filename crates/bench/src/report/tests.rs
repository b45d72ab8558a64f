use super::*;

fn sample() -> Results {
    let mut results = Results::new("rfc2544");
    results.parameter("rounds", 3);
    for (device, factor) in [("lanyard <xdp>", 3.0), ("bridge", 1.0)] {
        let broken = None;
        results.devices.push(DeviceNote { name: device.to_owned(), detail: "ready".to_owned(), broken });
        for size in [64.0, 512.0, 1518.0] {
            let key = Key::new("throughput", "", device).at(Axis::FrameBytes, size);
            let like = |key| Series {
                key,
                clause: "RFC 2544, 26.1".to_owned(),
                unit: Unit::FramesPerSecond,
                better: Better::Higher,
                rounds: Vec::new(),
                resolution: 1e4,
                caveats: vec!["the tester's limit".to_owned()],
            };
            let series = results.series_mut(key, like);
            series.rounds.extend([1.0e6 * factor, 1.1e6 * factor, 1.05e6 * factor]);
        }
        let key = Key::new("latency", "", device).at(Axis::FrameBytes, 64.0);
        let buckets = (1..100).map(|n| (factor * f64::from(n), u64::from(100u32.abs_diff(n * 2)))).collect();
        results.distributions.push(Distribution { key, unit: Unit::Microseconds, buckets });
    }
    let part = |name: &str, share| (name.to_owned(), share);
    results.bars.push(Bars {
        title: "where the time goes".to_owned(),
        bars: vec![
            ("2 hosts".to_owned(), vec![part("interface", 0.5), part("switch", 0.3), part("locks", 0.2)]),
            ("2048 hosts".to_owned(), vec![part("interface", 0.4), part("switch", 0.6)]),
        ],
    });
    results
}

#[test]
fn a_file_reads_back_as_it_was_written() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("a.json");
    let results = sample();
    let outputs = Outputs { json: Some(path.clone()), ..Outputs::default() };
    outputs.check().expect("writable");
    assert!(!path.exists(), "looking whether it can be written writes nothing");
    outputs.write(&results).expect("written");
    assert_eq!(Results::load(&path).expect("read"), results);
}

#[test]
fn files_that_are_something_else_are_named() {
    let dir = tempfile::tempdir().expect("a directory");
    let check = |text: &str, why: &str| {
        let path = dir.path().join("x.json");
        std::fs::write(&path, text).expect("written");
        let printed = format!("{:#}", Results::load(&path).expect_err("refused"));
        assert!(printed.contains("x.json") && printed.contains(why), "{printed}");
    };
    check("hello", "not JSON");
    check("{}", "no `format`");
    check("{\"format\": \"other/1\"}", "format other/1");
    check("{\"format\": \"lanyard-bench/2\"}", "missing field");
    let missing = Results::load(Path::new("/no/such.json")).expect_err("refused");
    assert!(format!("{missing:#}").starts_with("/no/such.json"), "{missing:#}");
    let outputs = Outputs { html: Some("/no/such/page.html".into()), ..Outputs::default() };
    let why = outputs.check().expect_err("refused before the run");
    assert!(format!("{why:#}").contains("/no/such/page.html"), "{why:#}");
}

#[test]
fn a_table_has_a_line_a_size_and_a_column_a_device() {
    let table = sample().table();
    for piece in
        ["throughput (RFC 2544, 26.1), Mpps", "| frame size | lanyard <xdp>", "| 512 B ", "1.050 ±0.1"]
    {
        assert!(table.contains(piece), "{piece} in\n{table}");
    }
    assert_eq!(table.matches("* the tester's limit").count(), 1, "printed once\n{table}");
}

#[test]
fn csv_has_a_line_a_round() {
    let csv = sample().csv().expect("written");
    assert_eq!(csv.lines().count(), 1 + 2 * 3 * 3);
    let line =
        "rfc2544,throughput,,bridge,frame size,512,2,frames_per_second,1100000,10000,\"RFC 2544, 26.1\"";
    assert!(csv.lines().any(|l| l == line), "{csv}");
}

/// Every opened element is closed, in order, and text is escaped, so browsers and XML readers accept the page.
#[test]
fn the_page_is_well_formed_and_whole() {
    let page = sample().page();
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page.as_str();
    while let Some(at) = rest.find('<') {
        let end = rest[at..].find('>').expect("every < is an element's") + at;
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        let name = tag.trim_start_matches('/').split([' ', '/']).next().unwrap_or_default();
        if tag.starts_with('/') {
            assert_eq!(open.pop(), Some(name), "…{}", &rest[..rest.len().min(80)]);
        } else if !(tag.ends_with('/') || tag.starts_with('!') || name == "meta") {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
    // One plot of throughput, one of the distributions, one of the bars; a curve in the colour of each device.
    assert_eq!(page.matches("<svg").count(), 3);
    for colour in ["#0072B2", "#D55E00"] {
        let curve = format!("<polyline fill=\"none\" opacity=\"1\" stroke=\"{colour}\" stroke-width=\"2\"");
        assert_eq!(page.matches(&curve).count(), 1, "{colour} in {page}");
    }
    assert!(page.contains("lanyard &lt;xdp&gt;") && !page.contains("lanyard <xdp>"));
    for outside in ["http://", "https://", "<script", "<link", "@import", "src="] {
        let alone = page.replace("http://www.w3.org/2000/svg", "");
        assert!(!alone.contains(outside), "{outside}");
    }
    // Set LANYARD_BENCH_PAGE=FILE to write the page to a file and look at it.
    if let Some(path) = std::env::var_os("LANYARD_BENCH_PAGE") {
        std::fs::write(path, page).expect("written");
    }
}

#[test]
fn a_report_without_results_is_rendered_as_incomplete() {
    let mut results = Results::new("overload");
    results.incomplete = Some("interrupted".to_owned());
    assert!(results.page().contains("Incomplete:</b> interrupted"));
    assert!(results.table().contains("INCOMPLETE: interrupted"));
    assert!(results.broken());
}

#[test]
fn quantiles_of_a_distribution() {
    let distribution = Distribution {
        key: Key::new("latency", "", "x"),
        unit: Unit::Microseconds,
        buckets: vec![(1.0, 50), (2.0, 49), (9.0, 1)],
    };
    let at = |p| distribution.quantile(p);
    assert_eq!([at(0.0), at(0.5), at(0.51), at(0.99), at(1.0)], [1.0, 1.0, 2.0, 2.0, 9.0].map(Some));
    assert_eq!(Distribution { buckets: Vec::new(), ..distribution }.quantile(0.5), None);
}
