//! Definitions to reports, against reference results, a slow model and theory.

mod answers;
mod assignments;
mod catalogue;
mod daily;
mod definitions;
mod equivalence;
mod follow_up;
mod golden;
mod kinds;
mod known_values;
mod left_out;
mod options;
mod overlap;
mod pages;
mod past_lifts;
mod paths;
mod plans;
mod reference;
mod reports;
mod simulations;
mod strata;
mod triggered;
