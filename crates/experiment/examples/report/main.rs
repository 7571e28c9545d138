//! Prints a report on made-up users. Run: `cargo run -p uplake-experiment --example report`
//! (`html` or `json` as an argument for the other forms, a number for the width; then lines to
//! put into the definition, such as `'inference = "bayesian"'`).

mod made_up;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = std::env::args().nth(1).unwrap_or_default();
    let more = std::env::args().nth(2).unwrap_or_default();
    let report = made_up::report(&format!("{more}\n{}", made_up::DEFINITION), 1000)?;
    match argument.as_str() {
        "html" => print!("{}", report.to_html()),
        "json" => print!("{}", report.to_json()),
        width => print!("{}", report.to_text(width.parse().unwrap_or(110), false)),
    }
    Ok(())
}
