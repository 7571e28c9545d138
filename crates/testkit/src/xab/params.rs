//! The ids the benchmark's queries need.

use super::world::World;
use super::{EXPERIMENTS, Purpose, stream};
use crate::date_text;

/// Pois in the query parameters.
const POI_SAMPLE: usize = 10_000;

/// The ids the benchmark's queries need; `params.json` in files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    /// Every day as `YYYY-MM-DD`.
    pub days: Vec<String>,
    /// The experiment reports are asked for.
    pub exp: i32,
    /// Per experiment: id, number of variants, first day.
    pub exps: Vec<(i32, u8, u32)>,
    /// A fairly active user, for the point look-up.
    pub point_user: String,
    /// Up to 10,000 pois of city 1, sorted.
    pub poi_ids: Vec<i64>,
    /// Pois of city 1.
    pub city1_pois: usize,
    /// Product rows of city 1.
    pub city1_rows: usize,
}

impl World {
    /// The ids the benchmark's queries need.
    #[must_use]
    pub fn params(&self) -> Params {
        let products = self.products();
        let mut poi_ids: Vec<i64> = products.pois_of_city(1).to_vec();
        let city1_pois = poi_ids.len();
        stream(self.options.seed, Purpose::PoiSample, 0, 0).shuffle(&mut poi_ids);
        poi_ids.truncate(POI_SAMPLE);
        poi_ids.sort_unstable();
        let point_user = self.ranks[self.ranks.len() / 20];
        Params {
            days: (0..self.options.days as i32)
                .map(|day| date_text(self.options.first_day + day))
                .collect(),
            exp: EXPERIMENTS[0].id,
            exps: EXPERIMENTS.iter().map(|e| (e.id, e.variants, e.first_day)).collect(),
            point_user: self.user_ids.get(point_user as usize).to_owned(),
            poi_ids,
            city1_pois,
            city1_rows: products.rows_of_city(1),
        }
    }
}
