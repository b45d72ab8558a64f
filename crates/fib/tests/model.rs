//! Both structures against the naive longest match: after every update, and between any two stores of one.

use ipnet::{Ipv4Net, Ipv6Net};
use lanyard_fib::{Full, NONE, Rib, View, Words, ipv4, ipv6};
use prefix_trie::{Prefix, PrefixMap};
use std::cell::{Cell, RefCell};
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// xorshift64*.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
    fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 11) % bound
    }
    fn pick<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len() as u64) as usize]
    }
}

/// Memory that looks up a few addresses after every store: each must be answered as before the update, or as after it.
struct Watched<A> {
    words: Vec<Cell<u32>>,
    lookup: fn(&Self, A) -> u32,
    /// Address, and the answers before and after.
    watch: RefCell<Vec<(A, u32, u32)>>,
    stores: Cell<u64>,
}

impl<A: Copy + std::fmt::Debug> Watched<A> {
    fn new(words: usize, lookup: fn(&Self, A) -> u32) -> Self {
        let watch = RefCell::new(Vec::new());
        Self { words: vec![Cell::new(0); words], lookup, watch, stores: Cell::new(0) }
    }
    fn look(&self) {
        for (address, before, after) in self.watch.borrow().iter() {
            let got = (self.lookup)(self, *address);
            assert!(got == *before || got == *after, "{address:?}: {got}, not {before} or {after}");
        }
    }
}

impl<A: Copy + std::fmt::Debug> Words for Watched<A> {
    fn load(&self, at: usize) -> u32 {
        self.words[at].get()
    }
    fn store(&self, at: usize, word: u32) {
        self.words[at].set(word);
        self.stores.set(self.stores.get() + 1);
        self.look();
    }
}

/// The most naive longest match.
fn naive<P: Prefix + Copy>(routes: &[(P, u32)], contains: impl Fn(P) -> bool) -> u32 {
    let matching = routes.iter().filter(|(prefix, _)| contains(*prefix));
    matching.max_by_key(|(prefix, _)| prefix.prefix_len()).map_or(NONE, |(_, word)| *word)
}

fn word(value: &u32) -> u32 {
    *value
}

trait Family: Copy + std::fmt::Debug {
    type Net: Prefix + Copy + PartialEq + std::fmt::Debug;
    type Writer;
    fn words() -> usize;
    fn writer() -> Self::Writer;
    fn lookup(words: &Watched<Self>, address: Self) -> u32;
    fn set(
        writer: &mut Self::Writer,
        words: &Watched<Self>,
        prefix: Self::Net,
        word: u32,
        rib: &impl Rib<Self::Net>,
    ) -> Result<(), Full>;
    fn pool(writer: &mut Self::Writer) -> &mut lanyard_fib::Pool;
    fn contains(prefix: Self::Net, address: Self) -> bool;
    fn prefix(rng: &mut Rng) -> Self::Net;
    fn address(rng: &mut Rng, near: Self::Net) -> Self;
}

impl Family for Ipv4Addr {
    type Net = Ipv4Net;
    type Writer = ipv4::Writer;
    fn words() -> usize {
        ipv4::words(6)
    }
    fn writer() -> ipv4::Writer {
        ipv4::Writer::new(6)
    }
    fn lookup(words: &Watched<Self>, address: Self) -> u32 {
        ipv4::lookup(words, address)
    }
    fn set(
        writer: &mut ipv4::Writer,
        words: &Watched<Self>,
        prefix: Ipv4Net,
        word: u32,
        rib: &impl Rib<Ipv4Net>,
    ) -> Result<(), Full> {
        writer.set(words, prefix, word, rib)
    }
    fn pool(writer: &mut ipv4::Writer) -> &mut lanyard_fib::Pool {
        &mut writer.groups
    }
    fn contains(prefix: Ipv4Net, address: Self) -> bool {
        prefix.contains(&address)
    }
    fn prefix(rng: &mut Rng) -> Ipv4Net {
        let len = rng.pick(&[0, 14, 15, 16, 20, 22, 23, 24, 24, 25, 26, 28, 30, 31, 32, 32]);
        let address =
            Ipv4Addr::new(10, rng.pick(&[0, 1, 255]), rng.pick(&[0, 1, 128]), rng.pick(&[0, 1, 128, 255]));
        Ipv4Net::new(address, len).expect("a length").trunc()
    }
    fn address(rng: &mut Rng, near: Ipv4Net) -> Self {
        match rng.below(4) {
            0 => near.network(),
            1 => near.broadcast(),
            2 => Ipv4Addr::from(u32::from(near.broadcast()).wrapping_add(1)),
            _ => Self::prefix(rng).network(),
        }
    }
}

impl Family for Ipv6Addr {
    type Net = Ipv6Net;
    type Writer = ipv6::Writer;
    fn words() -> usize {
        ipv6::words(48)
    }
    fn writer() -> ipv6::Writer {
        ipv6::Writer::new(48)
    }
    fn lookup(words: &Watched<Self>, address: Self) -> u32 {
        ipv6::lookup(words, address)
    }
    fn set(
        writer: &mut ipv6::Writer,
        words: &Watched<Self>,
        prefix: Ipv6Net,
        word: u32,
        rib: &impl Rib<Ipv6Net>,
    ) -> Result<(), Full> {
        writer.set(words, prefix, word, rib)
    }
    fn pool(writer: &mut ipv6::Writer) -> &mut lanyard_fib::Pool {
        &mut writer.lines
    }
    fn contains(prefix: Ipv6Net, address: Self) -> bool {
        prefix.contains(&address)
    }
    fn prefix(rng: &mut Rng) -> Ipv6Net {
        let len = rng.pick(&[
            0, 12, 15, 16, 17, 19, 20, 21, 24, 31, 32, 33, 36, 40, 48, 49, 63, 64, 65, 127, 128, 128,
        ]);
        let odd = [0, 0, 1, 0x8000, 0x1000, 0xffff];
        let words: [u16; 8] =
            std::array::from_fn(|n| if n == 0 { rng.pick(&[0x2001, 0x2002]) } else { rng.pick(&odd) });
        Ipv6Net::new(Ipv6Addr::from(words), len).expect("a length").trunc()
    }
    fn address(rng: &mut Rng, near: Ipv6Net) -> Self {
        match rng.below(4) {
            0 => near.network(),
            1 => near.broadcast(),
            2 => Ipv6Addr::from(u128::from(near.broadcast()).wrapping_add(1)),
            _ => Self::prefix(rng).network(),
        }
    }
}

/// Random inserts, changes and removals; at the end everything is removed and nothing may be left.
fn churn<A: Family>(seeds: std::ops::Range<u64>, updates: usize) {
    let words = Watched::new(A::words(), A::lookup);
    let (mut refused, mut stores) = (0, 0);
    for seed in seeds {
        let mut rng = Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        let mut writer = A::writer();
        let mut map = PrefixMap::new();
        let most = rng.pick(&[4, 12, 40]);
        for _ in 0..updates {
            refused += u64::from(!update::<A>(&mut rng, &words, &mut writer, &mut map, most));
            if rng.below(4) == 0 {
                A::pool(&mut writer).settle();
            }
        }
        while let Some(prefix) = map.iter().next().map(|(prefix, _)| prefix) {
            map.remove(&prefix);
            A::set(&mut writer, &words, prefix, NONE, &View::new(&map, word))
                .expect("removing takes nothing");
        }
        A::pool(&mut writer).settle();
        assert_eq!(A::pool(&mut writer).used(), 0, "seed {seed}: something is left");
        stores += words.stores.take();
        let direct = words.words.iter().take(A::words().min(ipv4::words(0)));
        assert!(seed % 64 != 0 || std::mem::size_of::<A>() > 4 || direct.clone().all(|word| word.get() == 0));
        words.words.iter().for_each(|word| word.set(0));
    }
    assert!(stores > 10_000 && refused > 0, "{stores} stores, {refused} refused");
}

/// One update, watched; false when it was refused.
fn update<A: Family>(
    rng: &mut Rng,
    words: &Watched<A>,
    writer: &mut A::Writer,
    map: &mut PrefixMap<A::Net, u32>,
    most: u64,
) -> bool {
    let routes: Vec<(A::Net, u32)> = map.iter().map(|(prefix, word)| (prefix, *word)).collect();
    let full = routes.len() as u64 >= most;
    let old = (full || rng.below(3) == 0) && !routes.is_empty();
    let prefix = if old { routes[rng.below(routes.len() as u64) as usize].0 } else { A::prefix(rng) };
    // Removing what is not there is no change.
    let gone = old && (full || rng.below(2) == 0) || rng.below(10) == 0;
    let new = if gone { NONE } else { 1 + rng.below(5) as u32 };
    let before = map.get(&prefix).copied();
    match new {
        NONE => _ = map.remove(&prefix),
        new => _ = map.insert(prefix, new),
    }
    let after: Vec<(A::Net, u32)> = map.iter().map(|(prefix, word)| (prefix, *word)).collect();
    let mut addresses: Vec<A> = (0..24).map(|_| A::address(rng, prefix)).collect();
    addresses.extend(routes.iter().take(12).map(|(near, _)| A::address(rng, *near)));
    let meets = |routes: &[(A::Net, u32)], address: A| naive(routes, |prefix| A::contains(prefix, address));
    let watch = addresses.iter().map(|address| (*address, meets(&routes, *address), meets(&after, *address)));
    words.watch.replace(watch.collect());
    words.look();
    let done = A::set(writer, words, prefix, new, &View::new(map, word));
    let now = if done.is_ok() { &after } else { &routes };
    for address in addresses {
        assert_eq!(
            A::lookup(words, address),
            meets(now, address),
            "{address:?} after {prefix:?} -> {new}: {done:?}"
        );
    }
    words.watch.borrow_mut().clear();
    if done.is_err() {
        match before {
            Some(before) => _ = map.insert(prefix, before),
            None => _ = map.remove(&prefix),
        }
    }
    done.is_ok()
}

#[test]
fn ipv4_answers_the_old_or_the_new() {
    churn::<Ipv4Addr>(0..6, 400);
}

#[test]
fn ipv6_answers_the_old_or_the_new() {
    churn::<Ipv6Addr>(0..300, 200);
}

/// Many routes as tables have them, every one looked up; and the memory they take.
#[test]
fn a_large_ipv6_table() {
    const ROUTES: u32 = 200_000;
    let words: Vec<AtomicU32> = (0..ipv6::words(1 << 20)).map(|_| AtomicU32::new(0)).collect();
    let mut writer = ipv6::Writer::new(1 << 20);
    let mut map = PrefixMap::<Ipv6Net, u32>::new();
    let mut rng = Rng(7);
    for n in 1..=ROUTES {
        let high = 0x2000_0000_0000_0000 | rng.next() >> 3;
        let len = rng.pick(&[48, 48, 48, 48, 32, 36, 40, 44, 46, 56, 64]);
        let prefix = Ipv6Net::new(Ipv6Addr::from(u128::from(high) << 64), len).expect("a length").trunc();
        map.insert(prefix, n);
        writer.set(&words[..], prefix, n, &View::new(&map, word)).expect("room");
    }
    for (prefix, _) in &map {
        let inside =
            u128::from(prefix.network()) | u128::from(rng.next()) << 40 & u128::from(prefix.hostmask());
        let want = map.get_lpm(&Ipv6Addr::from(inside).into()).map_or(NONE, |(_, word)| *word);
        assert_eq!(ipv6::lookup(&words[..], Ipv6Addr::from(inside)), want, "{prefix}");
    }
    let bytes = ipv6::words(writer.lines.used()) * 4;
    println!("{} lines, {bytes} bytes for {ROUTES} routes", writer.lines.used());
    assert!(bytes < 64 << 20, "{bytes} bytes for {ROUTES} routes");
}

/// A reader on another processor never sees anything but the route that is always there or the one that comes and goes.
#[test]
fn readers_on_other_processors() {
    let words: Vec<AtomicU32> = (0..ipv6::words(64)).map(|_| AtomicU32::new(0)).collect();
    let (words, stop) = (&words[..], &AtomicBool::new(false));
    let mut writer = ipv6::Writer::new(64);
    let mut map = PrefixMap::<Ipv6Net, u32>::new();
    let net = |text: &str| text.parse::<Ipv6Net>().expect(text);
    let probe: Ipv6Addr = "2001:db8:1:2::3".parse().expect("an address");
    map.insert(net("2001:db8::/32"), 1);
    writer.set(words, net("2001:db8::/32"), 1, &View::new(&map, word)).expect("room");
    let ready = &std::sync::Barrier::new(2);
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut looks = 0_u64;
            ready.wait();
            while looks == 0 || !stop.load(Ordering::Relaxed) {
                let got = ipv6::lookup(words, probe);
                assert!(got == 1 || got == 2, "{got}");
                looks += 1;
            }
            looks
        });
        ready.wait();
        for n in 0..20_000 {
            let prefix = net(["2001:db8:1::/48", "2001:db8:1:2::/64", "2001:db8:1:2::3/128"][n % 3]);
            map.insert(prefix, 2);
            let _ = writer.set(words, prefix, 2, &View::new(&map, word));
            map.remove(&prefix);
            writer.set(words, prefix, NONE, &View::new(&map, word)).expect("removing takes nothing");
            // No settling: freed lines stay as they are, as they do until a grace period has passed.
            if writer.lines.available() < 8 {
                break;
            }
        }
        stop.store(true, Ordering::Relaxed);
        assert!(reader.join().expect("the reader") > 0);
    });
}
