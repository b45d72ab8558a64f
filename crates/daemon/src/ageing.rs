//! Ageing of the forwarding database: sweeps the plane's table when entries may expire.
//!
//! Read `lanyard_switch::ageing` first, which decides when a sweep is due.

use crate::context::{Context, Module};
use lanyard_switch::Ageing;

/// The schedule of sweeps.
pub(crate) struct FdbAgeing {
    schedule: Ageing,
}

impl FdbAgeing {
    pub(crate) fn new(ctx: &Context) -> Self {
        Self { schedule: Ageing::new(ctx.clock.now_ms(), ctx.switch.config().fdb.ageing_s) }
    }
}

/// An address was learned, or events that may have reported one were lost.
pub(crate) struct Learned;

impl Module for FdbAgeing {
    type Event<'a> = Learned;
    fn configure(&mut self, ctx: &mut Context) {
        self.schedule.set(ctx.clock.now_ms(), ctx.switch.config().fdb.ageing_s);
    }
    fn handle(&mut self, ctx: &mut Context, Learned: Learned) -> usize {
        self.schedule.learned(ctx.clock.now_ms());
        1
    }
    fn next_ms(&self, _ctx: &Context) -> Option<u64> {
        self.schedule.next_ms()
    }
    fn tick(&mut self, ctx: &mut Context) {
        let now_ms = ctx.clock.now_ms();
        if self.next_ms(ctx).is_some_and(|next_ms| next_ms <= now_ms) {
            let sweep = ctx.plane.fdb_sweep(self.schedule.ageing_s());
            let done_ms = ctx.clock.now_ms();
            self.schedule.swept(done_ms, done_ms - now_ms, &sweep);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::World;
    use lanyard_config::Config;

    #[test]
    fn a_sweep_is_due_only_while_entries_may_expire() {
        let mut world = World::new();
        let ctx = &mut world.ctx;
        let mut ageing = FdbAgeing::new(ctx);
        assert_eq!(ageing.next_ms(ctx), Some(1000), "what an adopted table holds is not known");
        world.clock.set(999);
        ageing.tick(ctx);
        assert_eq!(ageing.next_ms(ctx), Some(1000), "not due yet");
        world.clock.set(1000);
        ageing.tick(ctx);
        assert_eq!(ageing.next_ms(ctx), None, "an empty table needs no sweep");
        ageing.handle(ctx, Learned);
        assert_eq!(ageing.next_ms(ctx), Some(121_000));
        let mut config = Config::default();
        config.fdb.ageing_s = 0;
        crate::testing::accept(ctx, config);
        ageing.configure(ctx);
        assert_eq!(ageing.next_ms(ctx), None, "ageing is off");
    }
}
