//! The shop search's catalogue: products of pois in geohash cells of twenty cities.

use std::ops::Range;

use super::world::World;
use super::{BLOCK_ROWS, Purpose, XabOptions, cents, rows_of, stream};
use crate::Strings;
use crate::random::{Alias, Random, zipf_weights};

const CITIES: usize = 20;
const BASE_32: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
const ADJECTIVES: [&str; 20] = [
    "招牌",
    "秘制",
    "北京",
    "四川",
    "广东",
    "老字号",
    "现烤",
    "香辣",
    "麻辣",
    "蜜汁",
    "炭烤",
    "经典",
    "特色",
    "儿童",
    "商务",
    "单人",
    "双人",
    "超值",
    "手工",
    "鲜",
];
const DISHES: [&str; 40] = [
    "牛肉面",
    "鸡腿饭",
    "奶茶",
    "汉堡",
    "披萨",
    "炒饭",
    "麻辣烫",
    "酸菜鱼",
    "小龙虾",
    "煎饼",
    "包子",
    "水饺",
    "黄焖鸡",
    "米线",
    "寿司",
    "沙拉",
    "烧烤",
    "烤串",
    "烤鱼",
    "火锅",
    "卤味",
    "凉皮",
    "肉夹馍",
    "粥",
    "豆浆",
    "咖啡",
    "果汁",
    "蛋糕",
    "冰淇淋",
    "排骨",
    "鸭血粉丝",
    "烤鸡",
    "炸鸡",
    "盖浇饭",
    "烤鸭",
    "鸭脖",
    "烤鸭卷饼",
    "馄饨",
    "热干面",
    "煲仔饭",
];
const OFFERS: [&str; 16] = [
    "",
    "套餐",
    "(大份)",
    "(小份)",
    "+饮料",
    "外卖专享",
    "【新品】",
    "一份",
    "500g",
    "买一送一",
    "加蛋",
    "微辣",
    "配米饭",
    "精品装",
    "(2-3人)",
    "限时特惠",
];

/// The catalogue's pois; rows are made from them in any range of blocks.
#[derive(Debug)]
pub struct Products {
    seed: u64,
    /// Sorted by `(city, geohash, id)`.
    pois: Vec<Poi>,
    /// Poi ids in the order of `pois`.
    ids: Vec<i64>,
    /// First row of each poi, then the number of rows.
    starts: Vec<usize>,
    dish: Alias,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Poi {
    city: i32,
    geohash: [u8; 5],
    id: i64,
}

/// Product rows, sorted by `(city_id, geohash, poi_id)`.
#[derive(Debug, Clone, PartialEq)]
pub struct ProductRows {
    /// 1 to 20.
    pub city_id: Vec<i32>,
    /// Five characters of which the first two follow from the city.
    pub geohash: Strings,
    /// Unique per poi, not monotone in the geohash.
    pub poi_id: Vec<i64>,
    /// The product's name, Chinese.
    pub spu_name: Strings,
    /// Two decimals.
    pub price: Vec<f64>,
    /// Units sold; a few products sell most.
    pub sales: Vec<i32>,
}

impl World {
    /// The product catalogue.
    #[must_use]
    pub fn products(&self) -> Products {
        Products::new(&self.options)
    }
}

impl Products {
    fn new(options: &XabOptions) -> Self {
        let count = (options.products / options.rows_per_poi.max(1)).max(1);
        let mut random = stream(options.seed, Purpose::Pois, 0, 0);
        let city = Alias::new(&zipf_weights(CITIES, 1.0, 0.8));
        // Ids of a city start at a multiple of this, and numbers within are unique over all cities.
        let city_stride = (count as i64).max(1_000_000);
        let mut numbers: Vec<i64> = (0..count as i64).collect();
        random.shuffle(&mut numbers);
        let mut pois: Vec<Poi> = numbers
            .iter()
            .map(|number| {
                let city = city.sample(&mut random) as i32 + 1;
                let geohash = geohash(city as usize, random.below(4096) as usize);
                Poi { city, geohash, id: i64::from(city) * city_stride + number }
            })
            .collect();
        pois.sort_unstable();
        Self {
            seed: options.seed,
            ids: pois.iter().map(|poi| poi.id).collect(),
            starts: starts(count, options.products, &mut random),
            pois,
            dish: Alias::new(&zipf_weights(DISHES.len(), 1.0, 1.1)),
        }
    }

    /// Product rows there are.
    #[must_use]
    pub fn rows(&self) -> usize {
        *self.starts.last().expect("starts ends with the number of rows")
    }

    /// Blocks of [`BLOCK_ROWS`] rows; the last one may be short.
    #[must_use]
    pub fn blocks(&self) -> usize {
        self.rows().div_ceil(BLOCK_ROWS)
    }

    /// Ids of the pois of `city` (1 to 20), ordered by geohash and id.
    #[must_use]
    pub fn pois_of_city(&self, city: i32) -> &[i64] {
        &self.ids[self.city_range(city)]
    }

    /// Product rows of `city` (1 to 20).
    #[must_use]
    pub fn rows_of_city(&self, city: i32) -> usize {
        let pois = self.city_range(city);
        self.starts[pois.end] - self.starts[pois.start]
    }

    fn city_range(&self, city: i32) -> Range<usize> {
        let start = self.pois.partition_point(|poi| poi.city < city);
        start..self.pois.partition_point(|poi| poi.city <= city)
    }

    /// The rows of `blocks`, in order.
    #[must_use]
    pub fn chunk(&self, blocks: Range<usize>) -> ProductRows {
        let rows = rows_of(&blocks, self.rows());
        let mut out = ProductRows::with_capacity(rows.len());
        for block in blocks {
            let random = stream(self.seed, Purpose::ProductBlock, 0, block as u32);
            self.fill(rows_of(&(block..block + 1), self.rows()), random, &mut out);
        }
        out
    }

    fn fill(&self, rows: Range<usize>, mut random: Random, out: &mut ProductRows) {
        let mut poi = self.starts.partition_point(|&start| start <= rows.start) - 1;
        for row in rows {
            while self.starts[poi + 1] <= row {
                poi += 1;
            }
            let Poi { city, geohash, id } = self.pois[poi];
            out.city_id.push(city);
            out.geohash.bytes.extend_from_slice(&geohash);
            out.geohash.close();
            out.poi_id.push(id);
            self.push_name(&mut random, &mut out.spu_name);
            out.price.push(cents(random.lognormal(3.2, 0.7)));
            out.sales.push((random.lomax(1.2) * 20.0).min(5e6) as i32);
        }
    }

    fn push_name(&self, random: &mut Random, names: &mut Strings) {
        let mut adjective = || ADJECTIVES[random.below(ADJECTIVES.len() as u64) as usize];
        let (first, second) = (adjective(), adjective());
        let dish = DISHES[self.dish.sample(random)];
        let offer = OFFERS[random.below(OFFERS.len() as u64) as usize];
        for part in [first, second, dish, offer] {
            names.bytes.extend_from_slice(part.as_bytes());
        }
        names.close();
    }
}

impl ProductRows {
    fn with_capacity(rows: usize) -> Self {
        Self {
            city_id: Vec::with_capacity(rows),
            geohash: Strings::with_capacity(rows, rows * 5),
            poi_id: Vec::with_capacity(rows),
            spu_name: Strings::with_capacity(rows, rows * 30),
            price: Vec::with_capacity(rows),
            sales: Vec::with_capacity(rows),
        }
    }
}

/// A cell of the city: `cell` is below 4096.
fn geohash(city: usize, cell: usize) -> [u8; 5] {
    let digit = |value: usize| BASE_32[value & 31];
    [b'w', digit(city), digit(cell >> 7), digit(cell >> 2), digit((cell & 3) * 7)]
}

/// First row of each poi, then `rows`: shares are lognormal, but never below the median.
fn starts(pois: usize, rows: usize, random: &mut Random) -> Vec<usize> {
    let sizes: Vec<f64> = (0..pois).map(|_| random.lognormal(0.0, 0.7).max(1.0)).collect();
    let total: f64 = sizes.iter().sum();
    let mut sum = 0.0;
    let mut starts: Vec<usize> = vec![0];
    starts.extend(sizes.iter().map(|size| {
        sum += size;
        (sum / total * rows as f64) as usize
    }));
    starts[pois] = rows;
    starts
}
