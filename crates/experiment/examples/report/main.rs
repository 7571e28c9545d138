//! Prints a report on made-up users. Run: `cargo run -p uplake-experiment --example report`
//! (`html` or `json` as an argument for the other forms, a number for the width; then lines to
//! put into the definition, such as `'inference = "bayesian"'`; then a number of metrics).

mod made_up;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = std::env::args().nth(1).unwrap_or_default();
    let more = std::env::args().nth(2).unwrap_or_default();
    let metrics = std::env::args().nth(3).and_then(|count| count.parse().ok());
    let definition = metrics.map_or_else(|| made_up::DEFINITION.to_owned(), made_up::many);
    let report = made_up::report(&format!("{more}\n{definition}"), 1000)?;
    match argument.as_str() {
        "html" => print!("{}", report.to_html()),
        "json" => print!("{}", report.to_json()),
        width => print!("{}", report.to_text(width.parse().unwrap_or(110), false)),
    }
    Ok(())
}
