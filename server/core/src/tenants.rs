//! Who spends on one dependency.

use std::collections::HashMap;

use crate::{Moment, Span, Verdict};

/// Most tenants of one dependency. Beyond it, strangers share one place until an idle tenant makes room.
const MOST: usize = 10_000;
/// A tenant that did nothing for so long may lose its place. It has no balance of its own, so it comes back
/// with nothing more than a fresh start.
const KEPT_FOR: Span = Span::from_secs(60);
/// The place of tenants that found none.
const OTHERS: &str = "_other";

/// A tenant's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TenantKey(u64);

/// The tenants of one dependency.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tenants {
    keys: HashMap<Box<str>, TenantKey>,
    by_key: HashMap<TenantKey, Tenant>,
    next: u64,
    swept: Moment,
}

/// One tenant.
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    pub(crate) name: Box<str>,
    pub(crate) decided: [u64; Verdict::ALL.len()],
    /// No retry before it: the longest Retry-After that the dependency gave to anyone of this tenant.
    pub(crate) hold_until: Moment,
    seen: Moment,
}

impl Tenants {
    /// The place of `name`, made if there is none. `busy` says who must not lose theirs.
    pub(crate) fn key(&mut self, now: Moment, name: &str, busy: impl Fn(TenantKey) -> bool) -> TenantKey {
        let known = self.keys.get(name).copied();
        let key = known.unwrap_or_else(|| self.admit(now, name, busy));
        if let Some(tenant) = self.by_key.get_mut(&key) {
            tenant.seen = now;
        }
        key
    }

    pub(crate) fn get_mut(&mut self, key: TenantKey) -> Option<&mut Tenant> {
        self.by_key.get_mut(&key)
    }

    pub(crate) fn hold_until(&self, key: TenantKey) -> Moment {
        self.by_key.get(&key).map_or(Moment::ORIGIN, |tenant| tenant.hold_until)
    }

    /// In no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TenantKey, &Tenant)> {
        self.by_key.iter().map(|(key, tenant)| (*key, tenant))
    }

    fn admit(&mut self, now: Moment, name: &str, busy: impl Fn(TenantKey) -> bool) -> TenantKey {
        if self.keys.len() >= MOST && now.since(self.swept) >= Span::SECOND {
            self.swept = now;
            self.by_key.retain(|key, tenant| now.since(tenant.seen) < KEPT_FOR || busy(*key));
            let kept = &self.by_key;
            self.keys.retain(|_, key| kept.contains_key(key));
        }
        if self.keys.len() < MOST || name == OTHERS {
            return self.insert(now, name);
        }
        self.keys.get(OTHERS).copied().unwrap_or_else(|| self.insert(now, OTHERS))
    }

    fn insert(&mut self, now: Moment, name: &str) -> TenantKey {
        let key = TenantKey(self.next);
        self.next += 1;
        self.keys.insert(name.into(), key);
        let tenant = Tenant { name: name.into(), decided: [0; _], hold_until: Moment::ORIGIN, seen: now };
        self.by_key.insert(key, tenant);
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const IDLE: fn(TenantKey) -> bool = |_| false;

    #[test]
    fn strangers_share_a_place_once_the_table_is_full_and_idle_ones_make_room() {
        let mut tenants = Tenants::default();
        for number in 0..MOST {
            tenants.key(Moment::ORIGIN, &number.to_string(), IDLE);
        }
        let known = tenants.key(Moment::ORIGIN, "0", IDLE);
        let one = tenants.key(Moment::ORIGIN, "stranger", IDLE);
        let other = tenants.key(Moment::ORIGIN, "another", IDLE);
        assert_eq!(one, other);
        assert_eq!(tenants.get_mut(one).map(|tenant| &*tenant.name), Some(OTHERS));
        assert_eq!(tenants.key(Moment::ORIGIN, "0", IDLE), known);

        let later = Moment::ORIGIN.after(KEPT_FOR);
        let own = tenants.key(later, "stranger", |key| key == known);
        assert_eq!(tenants.get_mut(own).map(|tenant| &*tenant.name), Some("stranger"));
        assert_eq!(tenants.key(later, "0", IDLE), known, "a busy tenant keeps its place");
    }
}
