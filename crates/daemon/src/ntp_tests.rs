use super::*;

/// As chrony 4.3 prints it, with a server that answers and one that does not.
const CHRONY: &str = "\
7F000001,192.0.2.1,4,1795796525.204380001,-0.000001505,0.000000221,0.000001398,-0.101,0.011,0.319,0.000005933,0.000001864,64.2,Normal
^,*,192.0.2.1,3,6,377,1,0.000000989,0.000001210,0.000004502
^,?,2001:db8::77,0,6,0,4294967295,0.000000000,0.000000000,0.000000000
192.0.2.1,C0000201,123,10.0.0.1,0A000001,Normal,4,Server,3,0,1,-26,0.000000015,0.000000,0.000000,0A090807,,1795796516.598848836,-0.000001210,0.000008935,0.000000035,0.000058325,0.00,111,111,1111,No,No,Kernel,Kernel,10,10,10,10
";

#[test]
fn the_report_of_chrony_is_parsed() {
    let Ntp { status, associations } = chrony(CHRONY).expect("parsed");
    assert_eq!(
        status,
        NtpStatus {
            client: "chrony",
            synchronized: true,
            stratum: Some(4),
            reference: Some("192.0.2.1".into()),
            reference_time: Some("2026-11-27T16:22:05Z".into()),
            offset_s: Some(0.000_001_505),
            root_delay_s: Some(0.000_005_933),
            root_dispersion_s: Some(0.000_001_864),
            frequency_ppm: Some(-0.101),
            skew_ppm: Some(0.319),
            update_interval_s: Some(64.2),
        }
    );
    let [first, second] = <[_; 2]>::try_from(associations).expect("two servers");
    assert_eq!(
        first,
        NtpAssociation {
            address: "192.0.2.1".into(),
            state: "selected",
            reference: Some("10.9.8.7".into()),
            stratum: Some(3),
            last_answer_s: Some(1),
            poll_s: 64,
            reach: 0o377,
            delay_s: Some(0.000_008_935),
            offset_s: Some(-0.000_000_989),
            dispersion_s: Some(0.000_004_502),
        }
    );
    assert_eq!((second.address.as_str(), second.state, second.reach), ("2001:db8::77", "unusable", 0));
    assert_eq!((second.stratum, second.last_answer_s, second.offset_s), (None, None, None));
}

#[test]
fn a_clock_that_is_not_synchronized() {
    let line = "00000000,,0,0.000000000,0.0,0.0,0.0,0.0,0.0,0.0,1.0,1.0,0.0,Not synchronised\n";
    let status = chrony(line).expect("parsed").status;
    assert_eq!(status, NtpStatus { client: "chrony", ..NtpStatus::default() });
}

#[test]
fn invalid_reports_of_chrony_are_refused_or_ignored() {
    assert_eq!(chrony("506 Cannot talk to daemon\n"), Err(NoReport("506 Cannot talk to daemon".into())));
    assert_eq!(chrony(""), Err(NoReport("no answer".into())));
    let odd = format!("{CHRONY}^,*,x,3,99,377,1,0,0,0\n^,!,x,3,6,377,1,0,0,0\n501 Not authorised\n");
    assert_eq!(chrony(&odd).expect("parsed").associations.len(), 2);
    let many = "^,*,192.0.2.1,3,6,377,1,0.1,0.1,0.1\n".repeat(MAX_SERVERS + 1);
    assert_eq!(chrony(&format!("{CHRONY}{many}")).expect("parsed").associations.len(), MAX_SERVERS);
    // No prefix of the reports, and no report with a changed byte, makes parsing panic.
    for end in 0..CHRONY.len() {
        let _ = chrony(&CHRONY[..end]);
        let mut bytes = CHRONY.as_bytes().to_vec();
        bytes[end] = b'-';
        let _ = chrony(&String::from_utf8_lossy(&bytes));
    }
}

/// As systemd 252 prints it.
const TIMESYNCD: &str = r#"{"type":"s","data":"time.example"}
{"type":"(iay)","data":[2,[192,0,2,1]]}
{"type":"t","data":64000000}
{"type":"(uuuuittayttttbtt)","data":[0,4,4,2,-20,1000,2000,[10,9,8,7],1000000,1500000,1500100,1000300,false,3,700]}
{"type":"x","data":-65536}
"#;

#[test]
fn the_report_of_timesyncd_is_parsed() {
    let Ntp { status, associations } = timesyncd(TIMESYNCD, true).expect("parsed");
    assert_eq!((status.client, status.synchronized, status.stratum), ("systemd-timesyncd", true, Some(3)));
    assert_eq!(status.reference.as_deref(), Some("192.0.2.1"));
    assert_eq!((status.frequency_ppm, status.update_interval_s), (Some(1.0), Some(64.0)));
    assert_eq!((status.root_delay_s, status.root_dispersion_s), (Some(0.001), Some(0.002)));
    let [server] = <[_; 1]>::try_from(associations).expect("a server");
    assert_eq!((server.state, server.stratum, server.poll_s, server.reach), ("selected", Some(2), 64, 1));
    assert_eq!(server.reference.as_deref(), Some("10.9.8.7"));
    // The server's clock is 0.4999 s ahead; 200 us of the 300 us are on the wire.
    let near = |value: Option<f64>, wanted: f64| value.is_some_and(|value| (value - wanted).abs() < 1e-9);
    assert!(near(server.offset_s, 0.4999) && near(server.delay_s, 0.0002), "{server:?}");
    assert!(near(status.offset_s, -0.4999));
}

/// chronyc reports the error of the clock, systemd-timesyncd the kernel's correction: the view of a clock that is 1.5 ppm fast is
/// the same.
#[test]
fn the_frequency_has_one_sign_with_both_programs() {
    let of_chrony = chrony(&CHRONY.replace(",-0.101,", ",1.500,")).expect("parsed").status;
    for (correction, wanted) in [("-98304", of_chrony.frequency_ppm), ("98304", Some(-1.5)), ("0", Some(0.0))]
    {
        let text = TIMESYNCD.replace("-65536", correction);
        assert_eq!(timesyncd(&text, true).expect("parsed").status.frequency_ppm, wanted, "{correction}");
    }
    assert_eq!(of_chrony.frequency_ppm, Some(1.5));
}

#[test]
fn a_timesyncd_without_a_server() {
    let text = TIMESYNCD.replace("[2,[192,0,2,1]]", "[0,[]]").replace("false,3,", "false,0,");
    let Ntp { status, associations } = timesyncd(&text, false).expect("parsed");
    assert!(!status.synchronized && associations.is_empty());
    assert_eq!((status.stratum, status.reference, status.offset_s), (None, None, None));
    assert!(timesyncd("", false).is_err() && timesyncd("{}\n{}\n", false).is_err());
    for end in 0..TIMESYNCD.len() {
        let _ = timesyncd(&TIMESYNCD[..end], true);
    }
}

#[test]
fn few_sessions_wait_at_a_time() {
    let places: Vec<Place> = std::iter::from_fn(Place::take).collect();
    assert_eq!(places.len(), MAX_ASKING);
    assert!(matches!(ask().blocking_recv(), Ok(Err(Failure::Busy))));
    drop(places);
    assert!(Place::take().is_some());
}
