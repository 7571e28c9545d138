//! So many a second of each address, a bucket of tokens each.
//!
//! An address that comes too fast waits for its next token, up to [`MOST_WAIT`]: a client that is a little too fast is
//! slowed down and not disturbed.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{MOST_KEPT, place};

/// Seconds whose tokens a bucket holds: a page of a report asks many things at once, then nothing.
const BURST_SECONDS: u32 = 5;
/// Who would wait longer is refused.
const MOST_WAIT: Duration = Duration::from_secs(2);

/// A rate, and when each address will have used up what it may by then.
#[derive(Debug)]
pub(crate) struct Rate {
    /// A token's time; `None` is no limit.
    each: Option<Duration>,
    addresses: Mutex<HashMap<IpAddr, Instant>>,
}

impl Rate {
    /// So many a second; 0 is no limit.
    pub fn new(per_second: u32) -> Self {
        let each = (per_second > 0).then(|| Duration::from_secs(1) / per_second);
        Self { each, addresses: Mutex::default() }
    }

    /// One comes; how long it has to wait.
    ///
    /// # Errors
    /// How long it would have to, which is too long. It is not counted.
    pub fn take(&self, address: IpAddr, now: Instant) -> Result<Duration, Duration> {
        let Some((each, address)) = self.each.zip(place(address)) else {
            return Ok(Duration::ZERO);
        };
        let mut addresses = self.addresses.lock().unwrap_or_else(PoisonError::into_inner);
        let used_until = addresses.get(&address).copied().unwrap_or(now).max(now);
        let burst = Duration::from_secs(BURST_SECONDS.into()) - each;
        let wait = used_until.duration_since(now).saturating_sub(burst);
        if wait > MOST_WAIT {
            return Err(wait);
        }
        if addresses.len() >= MOST_KEPT && !addresses.contains_key(&address) {
            make_room(&mut addresses, now);
        }
        addresses.insert(address, used_until + each);
        Ok(wait)
    }
}

/// Forgets those whose buckets are full again, and if there are none, who used least.
fn make_room(addresses: &mut HashMap<IpAddr, Instant>, now: Instant) {
    addresses.retain(|_, used_until| *used_until > now);
    if addresses.len() >= MOST_KEPT
        && let Some(least) = addresses.iter().min_by_key(|(_, until)| **until).map(|(ip, _)| *ip)
    {
        addresses.remove(&least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_too_fast_waits_and_then_is_refused() {
        let rate = Rate::new(10);
        let (one, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let now = Instant::now();
        for number in 0..50 {
            assert_eq!(rate.take(one, now), Ok(Duration::ZERO), "{number}");
        }
        assert_eq!(rate.take(one, now), Ok(Duration::from_millis(100)));
        for _ in 0..19 {
            assert!(rate.take(one, now).is_ok());
        }
        assert_eq!(rate.take(one, now), Err(Duration::from_millis(2100)));
        assert_eq!(rate.take(other, now), Ok(Duration::ZERO), "others are not to blame");
        // It has waited for what it was given, and no longer.
        let later = now + Duration::from_secs(2);
        assert_eq!(rate.take(one, later), Ok(Duration::from_millis(100)));
        let much_later = now + Duration::from_secs(100);
        let at_once = (0..60).filter(|_| rate.take(one, much_later) == Ok(Duration::ZERO)).count();
        assert_eq!(at_once, 50, "nobody saves up more than a bucket");
    }

    #[test]
    fn no_limit_is_none_and_this_machine_has_none() {
        let now = Instant::now();
        let free = Rate::new(0);
        let rate = Rate::new(1);
        for _ in 0..100 {
            assert_eq!(free.take("10.0.0.1".parse().unwrap(), now), Ok(Duration::ZERO));
            assert_eq!(rate.take("127.0.0.1".parse().unwrap(), now), Ok(Duration::ZERO));
        }
    }

    #[test]
    fn addresses_are_bounded() {
        let rate = Rate::new(1);
        let now = Instant::now();
        for number in 0..MOST_KEPT as u32 + 100 {
            let address = std::net::Ipv4Addr::from_bits(0x0a00_0000 + number);
            rate.take(address.into(), now).unwrap();
        }
        assert_eq!(rate.addresses.lock().unwrap().len(), MOST_KEPT);
        rate.take("11.0.0.1".parse().unwrap(), now + Duration::from_secs(9)).unwrap();
        assert_eq!(rate.addresses.lock().unwrap().len(), 1);
    }
}
