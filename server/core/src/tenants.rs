//! Who spends on one dependency.

use std::collections::HashMap;

use crate::breaker::Breaker;
use crate::ring::{Countable, Ring};
use crate::tenant_counts::TenantCounts;
use crate::{Moment, Ppm, Span};

/// Most tenants of one dependency. Beyond it, strangers share one place until an idle tenant makes room.
const MOST: usize = 100_000;
/// A tenant that did nothing for so long may lose its place. It has no balance of its own, so it comes back
/// with nothing more than a fresh start.
const KEPT_FOR: Span = Span::from_secs(60);
/// The place of tenants that found none.
const OTHERS: &str = "_other";

/// A tenant's place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TenantKey {
    place: u32,
    /// Tells a place's present holder from those before it.
    generation: u32,
}

/// The tenants of one dependency.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tenants {
    keys: HashMap<Box<str>, TenantKey>,
    places: Vec<Place>,
    free: Vec<u32>,
    swept: Moment,
}

#[derive(Clone, Debug, Default)]
struct Place {
    generation: u32,
    tenant: Option<Tenant>,
}

/// One tenant.
#[derive(Clone, Debug)]
pub(crate) struct Tenant {
    pub(crate) name: Box<str>,
    pub(crate) counts: TenantCounts,
    /// No retry before it: the longest Retry-After that the dependency gave to anyone of this tenant.
    pub(crate) hold_until: Moment,
    /// Its own breaker, where the policy's scope is the tenant.
    pub(crate) breaker: Option<Box<Breaker>>,
    /// What it did lately, where its amplification is capped.
    load: Option<Box<Ring<Load>>>,
    seen: Moment,
}

/// With its name twice, and a table that has just doubled, a tenant stays within 512 bytes.
const _: () = assert!(size_of::<Place>() <= 168);

/// One tenant's operations and granted retries.
#[derive(Clone, Copy, Debug, Default)]
struct Load {
    logical: u64,
    retries: u64,
}

impl Countable for Load {
    fn add(&mut self, other: &Self) {
        self.logical = self.logical.saturating_add(other.logical);
        self.retries = self.retries.saturating_add(other.retries);
    }
}

impl Tenant {
    /// Counts operations that the tenant reported.
    pub(crate) fn count_logical(&mut self, now: Moment, logical: u64) {
        self.load(now).add(now, &Load { logical, retries: 0 });
    }

    /// Counts a retry that the tenant was granted.
    pub(crate) fn count_retry(&mut self, now: Moment) {
        self.load(now).add(now, &Load { logical: 0, retries: 1 });
    }

    /// Whether one more retry would exceed `extra` retries per operation of the last ten seconds. The first one
    /// never does: reports come a second late, and a tenant that nobody knows yet may retry once.
    pub(crate) fn is_at_cap(&mut self, now: Moment, extra: Ppm) -> bool {
        let Load { logical, retries } = self.load(now).sum(now);
        retries > 0 && extra.exceeded_by(retries.saturating_add(1), logical)
    }

    fn load(&mut self, now: Moment) -> &mut Ring<Load> {
        self.load.get_or_insert_with(|| Box::new(Ring::new(now, Span::from_secs(10), 10)))
    }
}

impl TenantKey {
    /// The place of no tenant, for what concerns all of them.
    pub(crate) const NOBODY: Self = Self { place: u32::MAX, generation: u32::MAX };

    /// Spreads what tenants do at the same time.
    pub(crate) const fn seed(self) -> u64 {
        ((self.generation as u64) << 32) | self.place as u64
    }
}

impl Tenants {
    /// The place of `name`, made if there is none. `busy` says who must not lose theirs.
    pub(crate) fn key(&mut self, now: Moment, name: &str, busy: impl Fn(TenantKey) -> bool) -> TenantKey {
        let known = self.keys.get(name).copied();
        let key = known.unwrap_or_else(|| self.admit(now, name, busy));
        if let Some(tenant) = self.get_mut(key) {
            tenant.seen = now;
        }
        key
    }

    pub(crate) fn get(&self, key: TenantKey) -> Option<&Tenant> {
        let place = self.places.get(key.place as usize)?;
        place.tenant.as_ref().filter(|_| place.generation == key.generation)
    }

    pub(crate) fn get_mut(&mut self, key: TenantKey) -> Option<&mut Tenant> {
        let place = self.places.get_mut(key.place as usize)?;
        place.tenant.as_mut().filter(|_| place.generation == key.generation)
    }

    /// The place of `name`, if it has one.
    pub(crate) fn find(&self, name: &str) -> Option<(TenantKey, &Tenant)> {
        let key = *self.keys.get(name)?;
        self.get(key).map(|tenant| (key, tenant))
    }

    pub(crate) fn hold_until(&self, key: TenantKey) -> Moment {
        self.get(key).map_or(Moment::ORIGIN, |tenant| tenant.hold_until)
    }

    pub(crate) fn len(&self) -> usize {
        self.keys.len()
    }

    /// In no particular order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (TenantKey, &Tenant)> {
        self.keys.values().filter_map(|key| self.get(*key).map(|tenant| (*key, tenant)))
    }

    /// In no particular order.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Tenant> {
        self.places.iter_mut().filter_map(|place| place.tenant.as_mut())
    }

    fn admit(&mut self, now: Moment, name: &str, busy: impl Fn(TenantKey) -> bool) -> TenantKey {
        if self.keys.len() >= MOST && now.since(self.swept) >= Span::SECOND {
            self.swept = now;
            self.sweep(now, busy);
        }
        if self.keys.len() < MOST || name == OTHERS {
            return self.insert(now, name);
        }
        self.keys.get(OTHERS).copied().unwrap_or_else(|| self.insert(now, OTHERS))
    }

    /// Takes their places from the idle.
    fn sweep(&mut self, now: Moment, busy: impl Fn(TenantKey) -> bool) {
        let Self { keys, places, free, .. } = self;
        keys.retain(|_, key| {
            let Some(place) = places.get_mut(key.place as usize) else { return false };
            let idle = place.tenant.as_ref().is_none_or(|tenant| now.since(tenant.seen) >= KEPT_FOR);
            if idle && !busy(*key) {
                *place = Place { generation: place.generation.wrapping_add(1), tenant: None };
                free.push(key.place);
                return false;
            }
            true
        });
    }

    fn insert(&mut self, now: Moment, name: &str) -> TenantKey {
        let tenant = Tenant {
            name: name.into(),
            counts: TenantCounts::default(),
            hold_until: Moment::ORIGIN,
            breaker: None,
            load: None,
            seen: now,
        };
        let number = self.free.pop().unwrap_or_else(|| {
            self.places.push(Place::default());
            u32::try_from(self.places.len() - 1).unwrap_or(u32::MAX)
        });
        let mut key = TenantKey { place: number, generation: 0 };
        if let Some(place) = self.places.get_mut(number as usize) {
            key.generation = place.generation;
            place.tenant = Some(tenant);
        }
        self.keys.insert(name.into(), key);
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
