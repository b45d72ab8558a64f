use lanyard_bench::{bed::*, dut::*, os::*, traffic::*};
use std::time::Duration;
fn main() -> anyhow::Result<()> {
    catch_interrupts()?;
    let exe = Executable::new(None)?;
    let cases = [(Kind::Bridge, CountAt::Tc), (Kind::BareTc, CountAt::Tc), (Kind::BareTcPeer, CountAt::Tc), (Kind::Bridge, CountAt::Xdp), (Kind::BareXdp, CountAt::Xdp)];
    let mut v = vec![];
    for (k, at) in cases {
        let bed: &'static Bed = Box::leak(Box::new(Bed::new(1, if at == CountAt::Xdp { Traffic::XdpFrames } else { Traffic::Frames })?));
        let rx = Receiver::new(&bed.sink, &bed.receivers(), at, false)?;
        let d = k.up(bed, &exe, PortMode::Access)?;
        let s = Stream::new();
        Generator::new(&bed.sink, "rx1", &s.learning(true))?.send(4)?;
        let g = Generator::new(&bed.sender, "tx0", &s)?;
        v.push((k, at, bed, rx, d, g));
    }
    let _pin = Pinned::to(0)?;
    for _ in 0..5 {
        for (k, at, _, rx, _, g) in &mut v {
            let (a, s) = (rx.arrivals()?, g.sent()?);
            let t = g.run_for(Duration::from_millis(500))?;
            let (b, e) = (rx.arrivals()?, g.sent()?);
            print!("{}/{at:?} {:.3} (sent {:.3})  ", k.name(), (b.frames - a.frames) as f64 / t.as_secs_f64() / 1e6, (e - s) as f64 / t.as_secs_f64() / 1e6);
        }
        println!();
    }
    Ok(())
}
