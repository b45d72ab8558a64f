//! Time ranges: when a rule with `time-range` applies.
//!
//! Invariant: pure functions of a local time that the caller gives; a range without lines is always active, as in IOS.

/// A minute of a clock: minutes since that clock showed 1970-01-01 00:00, leap seconds not counted. Time ranges are compared with
/// local time, see [`Minute::in_zone`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Minute(pub i64);

/// Minutes of a day.
const DAY: i64 = 24 * 60;
/// Minutes of a week.
const WEEK: i64 = 7 * DAY;
/// 1970-01-01 was a Thursday; weeks begin on Sunday.
const EPOCH_WEEKDAY: i64 = 4;

/// The names of the months, the first one January.
pub const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// The names of days, and the days that they mean as a set of bits, bit 0 Sunday.
pub const DAYS: &[(&str, u8)] = &[
    ("Sunday", 1),
    ("Monday", 2),
    ("Tuesday", 4),
    ("Wednesday", 8),
    ("Thursday", 16),
    ("Friday", 32),
    ("Saturday", 64),
    ("daily", 127),
    ("weekdays", 0x3e),
    ("weekend", 0x41),
];

impl Minute {
    /// The minute of a date; `None` when there is no such date. Years are 1993..=2035, as in IOS.
    #[must_use]
    pub fn of(year: u16, month: u8, day: u8, hour: u8, minute: u8) -> Option<Self> {
        let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
        let length = match month {
            2 => 28 + u8::from(leap),
            4 | 6 | 9 | 11 => 30,
            1..=12 => 31,
            _ => return None,
        };
        if !(1993..=2035).contains(&year) || !(1..=length).contains(&day) || hour > 23 || minute > 59 {
            return None;
        }
        // Days since 1970-01-01, with years that begin in March, so that the leap day is a year's last.
        let (y, m) = if month > 2 {
            (i64::from(year), i64::from(month) - 3)
        } else {
            (i64::from(year) - 1, i64::from(month) + 9)
        };
        let days = y * 365 + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + i64::from(day) - 1 - 719_468;
        Some(Self(days * DAY + i64::from(hour) * 60 + i64::from(minute)))
    }
    /// Converts this minute of UTC to the local time of a zone that is `east_minutes` minutes ahead of UTC; negative to the west.
    #[must_use]
    pub fn in_zone(self, east_minutes: i32) -> Self {
        Self(self.0 + i64::from(east_minutes))
    }
    /// The minute of the week, which begins on Sunday at 00:00.
    fn in_week(self) -> i64 {
        (self.0 + EPOCH_WEEKDAY * DAY).rem_euclid(WEEK)
    }
}

/// A date as it is written, so that it can be printed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Date {
    /// Year, 1993..=2035.
    pub year: u16,
    /// Month, 1..=12.
    pub month: u8,
    /// Day of the month, 1..=31.
    pub day: u8,
    /// Hour, 0..=23.
    pub hour: u8,
    /// Minute, 0..=59.
    pub minute: u8,
}

impl Date {
    /// The minute; `None` when there is no such date.
    #[must_use]
    pub fn minute_of(self) -> Option<Minute> {
        Minute::of(self.year, self.month, self.day, self.hour, self.minute)
    }
    fn text(self) -> String {
        let month = MONTHS.get(usize::from(self.month).saturating_sub(1)).unwrap_or(&"");
        format!("{:02}:{:02} {:02} {month} {}", self.hour, self.minute, self.day, self.year)
    }
}

/// `periodic`: a part of each week.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Periodic {
    /// The days on which it begins, as a set of bits, bit 0 Sunday.
    pub days: u8,
    /// The minute of the day at which it begins.
    pub from: u16,
    /// The day on which it ends, one bit; 0: the day on which it begins, or the next one if `to` is before `from`.
    pub to_day: u8,
    /// The last minute that belongs to it, as a minute of the day.
    pub to: u16,
}

impl Periodic {
    fn active(self, at: Minute) -> bool {
        let now = at.in_week();
        (0..7).filter(|day| self.days >> day & 1 == 1).any(|day| {
            let begin = day * DAY + i64::from(self.from);
            // A period without a last day that ends before it begins ends on the next day.
            let last = match self.to_day {
                0 => day + i64::from(self.to < self.from),
                to_day => i64::from(to_day.trailing_zeros()),
            };
            // The period may go on into the next week.
            let length = (last * DAY + i64::from(self.to) - begin).rem_euclid(WEEK);
            (now - begin).rem_euclid(WEEK) <= length
        })
    }
    fn text(self) -> String {
        let exact = DAYS.iter().find(|(_, days)| *days == self.days);
        let days = exact.map_or_else(
            || {
                let each = DAYS.iter().filter(|(_, day)| day.count_ones() == 1 && self.days & day != 0);
                each.map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
            },
            |(name, _)| (*name).to_owned(),
        );
        let to_day = DAYS
            .iter()
            .find(|(_, day)| *day == self.to_day)
            .map_or(String::new(), |(name, _)| format!("{name} "));
        let clock = |minute: u16| format!("{}:{:02}", minute / 60, minute % 60);
        format!("periodic {days} {} to {to_day}{}", clock(self.from), clock(self.to))
    }
}

/// `time-range`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TimeRange {
    /// `absolute start`.
    pub start: Option<Date>,
    /// `absolute end`; this minute still belongs to it.
    pub end: Option<Date>,
    /// `periodic`.
    pub periodic: Vec<Periodic>,
}

impl TimeRange {
    /// True when it is active at this minute.
    #[must_use]
    pub fn active(&self, at: Minute) -> bool {
        let began = self.start.and_then(Date::minute_of).is_none_or(|start| start <= at);
        let goes_on = self.end.and_then(Date::minute_of).is_none_or(|end| at <= end);
        let now = self.periodic.is_empty() || self.periodic.iter().any(|periodic| periodic.active(at));
        began && goes_on && now
    }
    /// Its lines in the configuration.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let part = |word: &str, date: Option<Date>| {
            date.map_or(String::new(), |date| format!(" {word} {}", date.text()))
        };
        let absolute = format!("absolute{}{}", part("start", self.start), part("end", self.end));
        let absolute = (self.start.is_some() || self.end.is_some()).then_some(absolute);
        absolute.into_iter().chain(self.periodic.iter().map(|periodic| periodic.text())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(day: u8, hour: u8, minute: u8) -> Minute {
        Minute::of(2026, 11, day, hour, minute).expect("a date")
    }

    #[test]
    fn dates() {
        assert_eq!(Minute::of(2000, 1, 1, 0, 0), Some(Minute(946_684_800 / 60)));
        assert_eq!(Minute::of(2024, 2, 29, 12, 30), Some(Minute(1_709_209_800 / 60)));
        for wrong in [(2023, 2, 29), (1992, 1, 1), (2036, 1, 1), (2026, 13, 1), (2026, 4, 31), (2026, 1, 0)] {
            assert_eq!(Minute::of(wrong.0, wrong.1, wrong.2, 0, 0), None, "{wrong:?}");
        }
    }

    /// 2026-11-22 was a Sunday.
    #[test]
    fn periods() {
        let week = |days, from, to_day, to| TimeRange {
            periodic: vec![Periodic { days, from, to_day, to }],
            ..TimeRange::default()
        };
        let work = week(0x3e, 8 * 60, 0, 17 * 60);
        assert!(work.active(at(23, 8, 0)) && work.active(at(23, 17, 0)));
        assert!(!work.active(at(23, 7, 59)) && !work.active(at(23, 17, 1)) && !work.active(at(22, 12, 0)));
        let long = week(2, 8 * 60, 32, 17 * 60);
        assert!(long.active(at(25, 3, 0)) && long.active(at(27, 17, 0)) && !long.active(at(27, 17, 1)));
        let wraps = week(64, 22 * 60, 1, 6 * 60);
        assert!(wraps.active(at(21, 23, 0)) && wraps.active(at(22, 6, 0)) && !wraps.active(at(22, 7, 0)));
        let night = week(127, 22 * 60, 0, 5 * 60);
        assert!(night.active(at(22, 4, 0)) && night.active(at(22, 22, 0)) && night.active(at(23, 5, 0)));
        assert!(!night.active(at(23, 5, 1)) && !night.active(at(23, 12, 0)) && !night.active(at(23, 21, 59)));
        let friday = week(32, 22 * 60, 0, 5 * 60);
        assert!(friday.active(at(28, 5, 0)) && !friday.active(at(27, 4, 0)) && !friday.active(at(22, 12, 0)));
        assert_eq!(work.lines(), ["periodic weekdays 8:00 to 17:00"]);
        assert_eq!(long.lines(), ["periodic Monday 8:00 to Friday 17:00"]);
        assert!(TimeRange::default().active(at(1, 0, 0)));
    }

    #[test]
    fn absolute_limits() {
        let date = |hour| Date { year: 2026, month: 11, day: 23, hour, minute: 0 };
        let range = TimeRange { start: Some(date(8)), end: Some(date(9)), periodic: vec![] };
        assert_eq!(range.lines(), ["absolute start 08:00 23 November 2026 end 09:00 23 November 2026"]);
        assert!(range.active(at(23, 8, 0)) && range.active(at(23, 9, 0)));
        assert!(!range.active(at(23, 7, 59)) && !range.active(at(23, 9, 1)));
    }
}
