//! `uplake completions` and `uplake man`.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;

/// Arguments of `uplake completions`.
#[derive(Args, Debug)]
pub struct CompletionsArgs {
    /// The shell
    shell: Shell,
}

/// Arguments of `uplake man`.
#[derive(Args, Debug)]
pub struct ManArgs {
    /// Write a page for each command into this folder, instead of the first one to standard output
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// Writes completions to standard output.
pub fn completions(args: CompletionsArgs, mut command: Command) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut command, "uplake", &mut script);
    write(&script)
}

/// Writes manual pages.
pub fn man(args: ManArgs, command: Command) -> Result<()> {
    let Some(folder) = args.out else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page).context("writing the page")?;
        return write(&page);
    };
    let writing = || format!("writing pages to {}", folder.display());
    std::fs::create_dir_all(&folder).with_context(writing)?;
    clap_mangen::generate_to(command, &folder).with_context(writing)
}

fn write(bytes: &[u8]) -> Result<()> {
    use std::io::Write;
    // A reader that has enough is no fault: the error says that its pipe is closed.
    let mut out = std::io::stdout().lock();
    out.write_all(bytes)?;
    Ok(out.flush()?)
}
