//! Priors from past lifts against SciPy's optimiser, published estimates and a grid of all likelihoods.

use uplake_experiment::past_lifts::{PastLift, PastLiftsError, fit};

fn lifts(pairs: &[(f64, f64)]) -> Vec<PastLift> {
    pairs.iter().map(|&(value, error)| PastLift { value, error }).collect()
}

#[track_caller]
fn close(ours: f64, theirs: f64, relative: f64) {
    assert!((ours - theirs).abs() <= relative * theirs.abs(), "{ours} is not {theirs}");
}

/// Log risk ratios of 13 trials of the BCG vaccine and their errors (Colditz et al. 1994). Maximum likelihood in
/// R's metafor (`rma(yi, vi, data = dat.bcg, method = "ML")`) gives -0.7112 and a variance of 0.2800; the digits
/// are SciPy 1.17.1's: `optimize.minimize` of the likelihood of both, `brentq` for the ends.
#[test]
fn trials_of_a_vaccine_give_the_published_spread() {
    let prior = fit(&lifts(&[
        (-0.889_311_333_920_205_4, 0.570_600_354_892_950_7),
        (-1.585_388_657_201_430_6, 0.441_113_501_718_258_25),
        (-1.348_073_148_299_693_3, 0.644_490_469_571_091),
        (-1.441_551_190_021_305_4, 0.141_456_819_921_301_7),
        (-0.217_547_322_211_295_58, 0.226_296_646_395_015_9),
        (-0.786_115_585_818_864, 0.083_100_050_877_895_13),
        (-1.620_898_223_598_391_8, 0.472_247_019_654_243_2),
        (0.011_952_333_523_840_508, 0.062_941_077_984_236_41),
        (-0.469_417_648_738_149_4, 0.237_558_856_840_255_4),
        (-1.371_344_803_472_784_4, 0.270_231_000_466_266_3),
        (-0.339_358_828_338_390_6, 0.111_410_116_109_623_2),
        (0.445_913_400_571_378_74, 0.729_729_981_020_481_8),
        (-0.017_313_948_216_879_815, 0.267_216_503_390_015_74),
    ]))
    .expect("thirteen are enough");
    close(prior.mean, -0.711_199_139_312_429_8, 1e-7);
    close(prior.deviation, 0.529_176_848_098_817_4, 1e-7);
    close(prior.deviation_low, 0.324_156_414_110_431_2, 1e-7);
    close(prior.deviation_high, 0.913_188_084_035_322_5, 1e-7);
}

/// Effects of coaching in eight schools (Rubin 1981), whose errors explain all differences: the pooled mean is
/// 7.69.
#[test]
fn eight_schools_have_no_spread_of_their_own() {
    let schools = [
        (28.0, 15.0),
        (8.0, 10.0),
        (-3.0, 16.0),
        (7.0, 11.0),
        (-1.0, 9.0),
        (1.0, 11.0),
        (18.0, 10.0),
        (12.0, 18.0),
    ];
    let prior = fit(&lifts(&schools)).expect("eight are enough");
    close(prior.mean, 7.685_616_724_956_035, 1e-12);
    assert_eq!((prior.deviation, prior.deviation_low), (0.0, 0.0));
    close(prior.deviation_high, 13.017_526_010_993_608, 1e-9);
    // In another unit it is the same.
    let scaled = schools.map(|(value, error)| (value * 1e-9, error * 1e-9));
    let prior = fit(&lifts(&scaled)).expect("eight are enough");
    close(prior.deviation_high, 13.017_526_010_993_608e-9, 1e-9);
}

/// Twenty made-up lifts; SciPy as above.
#[test]
fn lifts_of_a_metric_give_what_scipy_finds() {
    let prior = fit(&lifts(&[
        (0.0109, 0.0135),
        (-0.0128, 0.0092),
        (0.0107, 0.0063),
        (0.0283, 0.021),
        (0.0173, 0.0159),
        (0.046, 0.0297),
        (0.0594, 0.0261),
        (0.0544, 0.0258),
        (0.0006, 0.0053),
        (0.0016, 0.0184),
        (0.048, 0.0198),
        (-0.0026, 0.0053),
        (0.0299, 0.0164),
        (0.0352, 0.0126),
        (-0.0483, 0.0096),
        (0.0153, 0.0247),
        (0.0071, 0.0149),
        (-0.0274, 0.0067),
        (-0.0248, 0.0136),
        (0.0555, 0.0278),
    ]))
    .expect("twenty are enough");
    close(prior.mean, 0.009_310_406_258_409_423, 1e-7);
    close(prior.deviation, 0.023_456_091_920_731_354, 1e-7);
    close(prior.deviation_low, 0.014_855_666_092_827_107, 1e-7);
    close(prior.deviation_high, 0.036_831_688_395_065_655, 1e-7);
}

/// Every mean and deviation of a fine grid is less likely, also where the likelihood has several hills.
#[test]
fn no_other_spread_is_more_likely() {
    let mut state = 22_u64;
    let mut uniform = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 11) as f64 / (1u64 << 53) as f64
    };
    let mut spread_out = 0;
    for round in 0..200 {
        let count = 5 + round % 20;
        // Errors from a thousandth to a tenth, and some lifts far out.
        let some: Vec<PastLift> = (0..count)
            .map(|_| {
                let error = 10f64.powf(-3.0 + 2.0 * uniform());
                let far = if uniform() < 0.2 { 0.2 } else { 0.02 };
                PastLift { value: (uniform() - 0.4) * far, error }
            })
            .collect();
        let likelihood = |mean: f64, deviation: f64| -> f64 {
            some.iter()
                .map(|lift| {
                    let variance = deviation.powi(2) + lift.error.powi(2);
                    -0.5 * (variance.ln() + (lift.value - mean).powi(2) / variance)
                })
                .sum()
        };
        let prior = fit(&some).expect("there are enough");
        spread_out += usize::from(prior.deviation > 0.0);
        let best = likelihood(prior.mean, prior.deviation);
        for mean in 0..=100 {
            let mean = -0.08 + 0.2 * f64::from(mean) / 100.0;
            for deviation in 0..=200 {
                let deviation = 0.25 * (f64::from(deviation) / 200.0).powi(2);
                let found = likelihood(mean, deviation);
                assert!(found <= best + 1e-9, "{mean} and {deviation} beat {prior:?} of {some:?}");
            }
        }
    }
    assert!(spread_out > 100, "{spread_out} of 200 had a spread");
}

#[test]
fn too_few_and_senseless_lifts_are_refused() {
    let four = lifts(&[(0.1, 0.1); 4]);
    assert_eq!(fit(&four), Err(PastLiftsError::TooFew { found: 4 }));
    assert!(fit(&four).unwrap_err().to_string().contains("4 lifts are too few"));
    for (value, error) in [(0.1, 0.0), (0.1, -1.0), (f64::NAN, 0.1), (0.1, f64::INFINITY)] {
        let mut some = lifts(&[(0.1, 0.1); 5]);
        some.extend(lifts(&[(value, error)]));
        assert_eq!(fit(&some), Err(PastLiftsError::OutOfRange));
    }
    // All alike.
    let prior = fit(&lifts(&[(0.1, 0.1); 5])).expect("five are enough");
    assert_eq!(prior.deviation, 0.0);
    close(prior.mean, 0.1, 1e-15);
    assert!(prior.deviation_high > 0.0);
}
