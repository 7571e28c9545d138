//! Patterns of events in time: the meaning of `sequence_match` and `sequence_count`.
//!
//! ```text
//! (?1)                 a row for which condition 1 holds
//! .                    any row
//! .*                   any rows, or none
//! (?1)(?t<=3600)(?2)   at most 3600 seconds between the two, and any rows; also < > >= ==
//! ```
//!
//! Only rows with a condition that holds are looked at, in the order of time; rows of one time in
//! the order of the first condition in which they differ, the one that holds it first. What
//! follows directly in the pattern follows directly among these rows. A pattern may begin and end
//! anywhere. A chain is one way to match it; chains that are counted have no row in common and do
//! not interlace: the next begins after the end of the one that ended first.
//!
//! # Invariants
//! - One pass over the rows; per row at most one step per event of the pattern, so there is no
//!   limit of iterations. Memory is a time per matched row.
//! - A match ends at the earliest row at which any match can end.
//!
//! # Source
//! ClickHouse's `sequenceMatch`. A `.*` beside a time condition adds nothing here, because any
//! rows may lie there anyway; in ClickHouse it starts the clock anew.

use std::collections::VecDeque;

use crate::event_log::Mask;

/// Events of a pattern: a user's rows are compared with each.
const EVENTS_MAX: usize = 64;

/// What may lie between two events of a pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Gap {
    /// Nothing.
    adjacent: bool,
    /// Time from one to the other, in the unit of the times; both included.
    least: i64,
    most: i64,
}

const ADJACENT: Gap = Gap { adjacent: true, least: 0, most: i64::MAX };

/// A pattern, ready to be matched.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Pattern {
    /// Per event, the bits of which one must be set, and what lies before it.
    events: Vec<(u32, Gap)>,
}

impl Pattern {
    /// Reads a pattern. `per_second`: units of time in a second; `conditions`: how many there are.
    ///
    /// # Errors
    /// What is wrong, and where.
    pub fn parse(text: &str, per_second: i64, conditions: usize) -> Result<Self, String> {
        let mut events: Vec<(u32, Gap)> = Vec::new();
        let (mut gap, mut timed) = (ADJACENT, false);
        let mut rest = text;
        while !rest.is_empty() {
            let at = text.len() - rest.len() + 1;
            let mut event = None;
            if let Some(after) = rest.strip_prefix(".*") {
                (gap.adjacent, rest) = (false, after);
            } else if let Some(after) = rest.strip_prefix('.') {
                (event, rest) = (Some(u32::MAX), after);
            } else if let Some(after) = rest.strip_prefix("(?t") {
                if events.is_empty() {
                    return Err(format!(
                        "the time condition at character {at} has no event before it"
                    ));
                }
                let (inside, after) = closed(after, at)?;
                gap = within(gap, inside, per_second).ok_or_else(|| {
                    format!(
                        "the time condition at character {at} is not (?t<=SECONDS), <, >, >= or =="
                    )
                })?;
                (timed, rest) = (true, after);
            } else if let Some(after) = rest.strip_prefix("(?") {
                let (inside, after) = closed(after, at)?;
                let number = inside.parse().ok().filter(|n| (1..=conditions).contains(n));
                let number = number.ok_or_else(|| {
                    format!("(?{inside}) at character {at}: conditions are 1 to {conditions}")
                })?;
                (event, rest) = (Some(1 << (number - 1)), after);
            } else {
                return Err(format!("character {at} begins none of (?N), (?t<=SECONDS), . and .*"));
            }
            if let Some(bits) = event {
                events.push((bits, gap));
                (gap, timed) = (ADJACENT, false);
            }
        }
        if timed {
            return Err("no event follows the last time condition".into());
        }
        if events.is_empty() || events.len() > EVENTS_MAX {
            return Err(format!("a pattern has 1 to {EVENTS_MAX} events"));
        }
        Ok(Self { events })
    }

    /// Whether a chain matches. As [`Pattern::count`] otherwise.
    pub fn matches<M: Mask>(&self, times: &[i64], masks: &[M]) -> bool {
        self.run(times, masks, true) > 0
    }

    /// Chains that match. Rows in the order of [`order`], each with a condition that holds.
    pub fn count<M: Mask>(&self, times: &[i64], masks: &[M]) -> i64 {
        self.run(times, masks, false)
    }

    fn run<M: Mask>(&self, times: &[i64], masks: &[M], once: bool) -> i64 {
        let met = masks.iter().fold(0, |all, mask| all | mask.bits());
        if self.events.iter().any(|(bits, _)| bits & met == 0) {
            return 0;
        }
        let mut reached = vec![Reached::default(); self.events.len()];
        let mut chains = 0;
        for (row, (time, mask)) in times.iter().zip(masks).enumerate() {
            // The last event first, so that no row is two events of a chain.
            for event in (0..self.events.len()).rev() {
                let (bits, gap) = self.events[event];
                let follows = event == 0 || reached[event - 1].allows(gap, row, *time);
                if !follows || mask.bits() & bits == 0 {
                    continue;
                }
                if event + 1 == self.events.len() {
                    if once {
                        return 1;
                    }
                    chains += 1;
                    reached.iter_mut().for_each(Reached::clear);
                    break;
                }
                reached[event].at(row, *time, self.events[event + 1].1);
            }
        }
        chains
    }
}

/// The text up to the bracket, and what follows it.
fn closed(text: &str, at: usize) -> Result<(&str, &str), String> {
    text.split_once(')').ok_or_else(|| format!("the bracket at character {at} is not closed"))
}

/// A gap under one more condition, such as `<=3600`.
fn within(gap: Gap, condition: &str, per_second: i64) -> Option<Gap> {
    let (comparison, number) = condition.split_at(condition.find(|c: char| c.is_ascii_digit())?);
    let time = number.parse::<i64>().ok()?.checked_mul(per_second)?;
    let (least, most) = match comparison {
        "<" => (0, time - 1),
        "<=" => (0, time),
        ">" => (time.checked_add(1)?, i64::MAX),
        ">=" => (time, i64::MAX),
        "==" => (time, time),
        _ => return None,
    };
    Some(Gap { adjacent: false, least: gap.least.max(least), most: gap.most.min(most) })
}

/// Where chains have come to one event.
#[derive(Debug, Clone, Default)]
struct Reached {
    last_row: Option<usize>,
    /// Times that are still too near for the gap that follows, in order.
    near: VecDeque<i64>,
    /// The latest that is far enough: the last one to be too far.
    far: Option<i64>,
}

impl Reached {
    fn at(&mut self, row: usize, time: i64, next: Gap) {
        self.last_row = Some(row);
        if next.adjacent {
            return;
        }
        if next.least == 0 {
            self.far = Some(time);
        } else {
            self.near.push_back(time);
        }
    }

    /// Can the next event be at this row?
    fn allows(&mut self, gap: Gap, row: usize, time: i64) -> bool {
        if gap.adjacent {
            return self.last_row.is_some_and(|last| last + 1 == row);
        }
        let reaches = |from: i64, span: i64| time.checked_sub(from).is_none_or(|dt| dt >= span);
        while let Some(from) = self.near.front().copied().filter(|from| reaches(*from, gap.least)) {
            self.far = Some(from);
            self.near.pop_front();
        }
        let most = gap.most;
        self.far
            .is_some_and(|from| time.checked_sub(from).map_or(most == i64::MAX, |dt| dt <= most))
    }

    fn clear(&mut self) {
        (self.last_row, self.far) = (None, None);
        self.near.clear();
    }
}

/// Sorts rows as patterns need them: by time, then by the first condition in which they differ.
pub(crate) fn order<M: Mask>(rows: &mut [(i64, M)]) {
    rows.sort_unstable_by_key(|(time, mask)| (*time, !mask.bits().reverse_bits()));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::random::Random;

    /// One item of a pattern as it is written.
    #[derive(Debug, Clone, Copy)]
    enum Item {
        Event(usize),
        Any,
        Star,
        Time(&'static str, i64),
    }

    fn text(items: &[Item]) -> String {
        let one = |item: &Item| match item {
            Item::Event(n) => format!("(?{n})"),
            Item::Any => ".".into(),
            Item::Star => ".*".into(),
            Item::Time(op, seconds) => format!("(?t{op}{seconds})"),
        };
        items.iter().map(one).collect()
    }

    fn fits(op: &str, dt: i64, bound: i64) -> bool {
        match op {
            "<" => dt < bound,
            "<=" => dt <= bound,
            ">" => dt > bound,
            ">=" => dt >= bound,
            _ => dt == bound,
        }
    }

    /// The earliest row after which the items can end, when the event before was at `last`; by
    /// trying every row for every item.
    fn earliest(
        items: &[Item],
        rows: &[(i64, u32)],
        last: Option<usize>,
        first: usize,
    ) -> Option<usize> {
        let event = items.iter().position(|item| matches!(item, Item::Event(_) | Item::Any));
        let Some(event) = event else { return last.map(|row| row + 1) };
        let between = &items[..event];
        let candidates = match last {
            Some(last) if between.is_empty() => last + 1..(last + 2).min(rows.len()),
            Some(last) => last + 1..rows.len(),
            None => first..rows.len(),
        };
        let mut best: Option<usize> = None;
        for row in candidates {
            let holds = match items[event] {
                Item::Event(n) => rows[row].1 >> (n - 1) & 1 == 1,
                _ => true,
            };
            let in_time = between.iter().all(|item| match (item, last) {
                (Item::Time(op, bound), Some(last)) => fits(op, rows[row].0 - rows[last].0, *bound),
                _ => true,
            });
            if holds
                && in_time
                && let Some(end) = earliest(&items[event + 1..], rows, Some(row), first)
            {
                best = Some(best.map_or(end, |best| best.min(end)));
            }
        }
        best
    }

    fn random_items(random: &mut Random, conditions: u64) -> Vec<Item> {
        let mut items = Vec::new();
        let events = 1 + random.below(4);
        for i in 0..events {
            if i > 0 {
                match random.below(6) {
                    0 | 1 => items.push(Item::Star),
                    2 | 3 => {
                        let op = ["<", "<=", ">", ">=", "=="][random.below(5) as usize];
                        items.push(Item::Time(op, random.below(9) as i64));
                        if random.below(4) == 0 {
                            items.push(Item::Star);
                        }
                        if random.below(4) == 0 {
                            items.push(Item::Time(">=", random.below(4) as i64));
                        }
                    }
                    _ => {}
                }
            }
            let any = random.below(6) == 0;
            let event = Item::Event(1 + random.below(conditions) as usize);
            items.push(if any { Item::Any } else { event });
        }
        items
    }

    #[test]
    fn patterns_match_and_count_as_trying_every_row_does() {
        let mut counts = [0; 4];
        for seed in 0..40_000 {
            let mut random = Random::new(seed);
            let conditions = 1 + random.below(3);
            let items = random_items(&mut random, conditions);
            let (count, span) = (random.below(12), 1 + random.below(25));
            let mut rows: Vec<(i64, u32)> = (0..count)
                .map(|_| {
                    (random.below(span) as i64, 1 + random.below((1 << conditions) - 1) as u32)
                })
                .collect();
            order(&mut rows);
            let mut expected = 0;
            let mut first = 0;
            while let Some(end) = earliest(&items, &rows, None, first) {
                expected += 1;
                first = end;
            }
            let pattern = Pattern::parse(&text(&items), 1, conditions as usize).unwrap();
            let (times, masks): (Vec<i64>, Vec<u32>) = rows.iter().copied().unzip();
            let what = format!("seed {seed}: {} on {rows:?}", text(&items));
            assert_eq!(pattern.count(&times, &masks), expected, "{what}");
            assert_eq!(pattern.matches(&times, &masks), expected > 0, "{what}");
            counts[expected.min(3) as usize] += 1;
        }
        assert!(counts.iter().all(|count| *count > 1000), "cases too easy: {counts:?}");
    }

    #[test]
    fn a_million_rows_are_no_limit() {
        // ClickHouse gives up on this after a million steps back.
        let times: Vec<i64> = (0..1_000_000).collect();
        let masks = vec![1u8; times.len()];
        let pattern = Pattern::parse("(?1).*(?1).*(?1)(?t>=2000000)(?1)", 1, 2).unwrap();
        assert!(!pattern.matches(&times, &masks));
        assert_eq!(Pattern::parse("(?1).*(?1)", 1, 2).unwrap().count(&times, &masks), 500_000);
    }

    #[test]
    fn what_is_wrong_with_a_pattern_is_said() {
        let error = |text| Pattern::parse(text, 1, 2).unwrap_err();
        assert!(error("(?3)").contains("conditions are 1 to 2"));
        assert!(error("(?0)").contains("conditions are 1 to 2"));
        assert!(error("(?1)x").contains("character 5"));
        assert!(error("(?1").contains("not closed"));
        assert!(error("(?t<3)(?1)").contains("no event before"));
        assert!(error("(?1)(?t<3)").contains("no event follows"));
        assert!(error("(?1)(?t=3)(?2)").contains("character 5"));
        assert!(error("(?1)(?t<99999999999999999999)(?2)").contains("character 5"));
        assert!(error("").contains("1 to 64 events"));
        assert!(error(".*").contains("1 to 64 events"));
        assert!(error("é(?1)").contains("character 1"));
    }
}
