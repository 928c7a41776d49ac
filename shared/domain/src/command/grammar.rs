//! Parses commands from a comment. A command is the first word of a line that is plain text in the rendered comment:
//! Markdown is parsed, so text that is quoted, code, struck out, hidden in HTML, or part of a heading, a table or a
//! formula is not a command. Whether a command is allowed is decided in `validity`.

use pulldown_cmark::{Event, Options, Parser, Tag};

use super::Command;

/// The most commands, and also the most unknown words, that are read from one comment.
pub const PER_COMMENT_MAX: usize = 10;

/// The most bytes that are read of a comment. GitHub's own limit is 65,536 characters.
pub const BODY_MAX_BYTES: usize = 64 * 1024;

/// The most characters that are kept of the text after a command.
pub const ARGS_MAX_CHARS: usize = 200;

/// The lengths, without the slash, at which an unknown word counts as an attempted command.
const WORD_LETTERS: std::ops::RangeInclusive<usize> = 2..=30;

/// GitHub's extensions of Markdown that decide which text is plain.
const GITHUB_MARKDOWN: Options =
    Options::ENABLE_STRIKETHROUGH.union(Options::ENABLE_TABLES).union(Options::ENABLE_MATH);

/// Punctuation that people put behind a command.
const PUNCTUATION: [char; 3] = ['.', ',', '!'];

/// One command, or a word that looks like one, in a comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParsedCommand {
    /// A command and the text after it on its line.
    Known {
        command: Command,
        /// The rest of the line, trimmed and at most [`ARGS_MAX_CHARS`] long.
        args: String,
    },
    /// A word that looks like a command but is not one. Without a `nearest` it is probably a path or another bot's
    /// command ("/etc is missing", `/lgtm`) and gets no reply.
    Unknown {
        /// The word as typed: a slash, letters and hyphens.
        word: String,
        nearest: Option<Command>,
    },
}

/// The commands of a comment, in order.
///
/// A repeated command counts once: both would be decided on the same state of the same commit, so the second could
/// only be refused or repeat the work.
pub fn parse(body: &str) -> Vec<ParsedCommand> {
    let text = within_limit(body.strip_prefix('\u{feff}').unwrap_or(body));
    let mut all = Vec::new();
    let (mut known, mut unknown) = (0, 0);
    for asked in visible_lines(text).into_iter().filter_map(read_line) {
        let count = match asked {
            ParsedCommand::Known { .. } => &mut known,
            ParsedCommand::Unknown { .. } => &mut unknown,
        };
        // Counted separately: a pasted list of paths must not use up the limit for the commands below it.
        if *count < PER_COMMENT_MAX && !all.iter().any(|earlier| is_same(earlier, &asked)) {
            *count += 1;
            all.push(asked);
        }
    }
    all
}

/// The nearest command, if the word is similar enough to be a typo: one edit per four letters of the command, or its
/// beginning up to a hyphen (`/update`). A looser rule would suggest `/status` for `/static`.
pub(super) fn nearest(word: &str) -> Option<Command> {
    let word = word.to_ascii_lowercase();
    let is_beginning = |name: &str| name.strip_prefix(&word).is_some_and(|rest| rest.starts_with('-'));
    let distance = |name: &str| strsim::damerau_levenshtein(&word, name);
    let is_near = |name: &str| {
        let edits_max = (name.len() - 1) / 4;
        // Compare the lengths first: the distance is quadratic, and a word from the API can have any length.
        name.len().abs_diff(word.len()) <= edits_max && distance(name) <= edits_max
    };
    let by_beginning = Command::ALL.into_iter().find(|command| is_beginning(command.name()));
    let near = Command::ALL.into_iter().filter(|command| is_near(command.name()));
    by_beginning.or_else(|| near.min_by_key(|command| distance(command.name())))
}

/// The body up to the limit, without a word that the limit splits: half of `/cancel-nothing` must not read as `/cancel`.
fn within_limit(body: &str) -> &str {
    if body.len() <= BODY_MAX_BYTES {
        return body;
    }
    let cut = &body[..body.floor_char_boundary(BODY_MAX_BYTES)];
    cut.rfind(char::is_whitespace).map_or("", |end| &cut[..end])
}

/// The source lines that start, after at most three spaces, with visible plain text; without those spaces and without
/// the line end.
fn visible_lines(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut hidden_until = 0;
    for (event, range) in Parser::new_ext(text, GITHUB_MARKDOWN).into_offset_iter() {
        match event {
            Event::Start(
                Tag::BlockQuote(_)
                | Tag::CodeBlock(_)
                | Tag::Image { .. }
                | Tag::Strikethrough
                | Tag::Table(_)
                | Tag::Heading { .. },
            ) => hidden_until = range.end.max(hidden_until),
            // Inline code, formulas, HTML and link targets are separate events, never text.
            Event::Text(_) if range.start >= hidden_until => lines.extend(line_from(text, range.start)),
            Event::Text(_)
            | Event::Start(_)
            | Event::End(_)
            | Event::Code(_)
            | Event::InlineMath(_)
            | Event::DisplayMath(_)
            | Event::Html(_)
            | Event::InlineHtml(_)
            | Event::FootnoteReference(_)
            | Event::SoftBreak
            | Event::HardBreak
            | Event::Rule
            | Event::TaskListMarker(_) => {}
        }
    }
    lines
}

/// The line that starts at this offset. `None` for text after a list marker or inside a line.
fn line_from(text: &str, start: usize) -> Option<&str> {
    let (before, rest) = text.split_at_checked(start)?;
    let above = before.trim_end_matches(' ');
    let indent = before.len() - above.len();
    let starts_line = above.is_empty() || above.ends_with(['\n', '\r']);
    if !starts_line || indent > 3 {
        return None;
    }
    rest.split(['\n', '\r']).next()
}

/// The command in the first word of a line. Except for punctuation behind it, the word must match completely:
/// `/usr/bin` and `/rebuild/x` are ignored.
fn read_line(line: &str) -> Option<ParsedCommand> {
    let (word, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
    if let Some(command) = Command::named(word.trim_end_matches(PUNCTUATION)) {
        let args = rest.trim().chars().take(ARGS_MAX_CHARS).collect();
        return Some(ParsedCommand::Known { command, args });
    }
    let letters = word.strip_prefix('/')?;
    let looks_like_one = WORD_LETTERS.contains(&letters.len())
        && letters.starts_with(|c: char| c.is_ascii_alphabetic())
        && letters.bytes().all(|b| b.is_ascii_alphabetic() || b == b'-');
    looks_like_one.then(|| ParsedCommand::Unknown { word: word.to_owned(), nearest: nearest(word) })
}

/// Whether both are the same command or word, ignoring the arguments.
fn is_same(one: &ParsedCommand, other: &ParsedCommand) -> bool {
    match (one, other) {
        (ParsedCommand::Known { command: a, .. }, ParsedCommand::Known { command: b, .. }) => a == b,
        (ParsedCommand::Unknown { word: a, .. }, ParsedCommand::Unknown { word: b, .. }) => a.eq_ignore_ascii_case(b),
        (ParsedCommand::Known { .. }, ParsedCommand::Unknown { .. })
        | (ParsedCommand::Unknown { .. }, ParsedCommand::Known { .. }) => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Renders `/name` or `/name(args)` for commands, `?word` or `?word=/nearest` for unknown words.
    fn read(body: &str) -> String {
        let show = |asked: ParsedCommand| match asked {
            ParsedCommand::Known { command, args } if args.is_empty() => command.name().to_owned(),
            ParsedCommand::Known { command, args } => format!("{command}({args})"),
            ParsedCommand::Unknown { word, nearest: None } => format!("?{word}"),
            ParsedCommand::Unknown { word, nearest: Some(near) } => format!("?{word}={near}"),
        };
        parse(body).into_iter().map(show).collect::<Vec<_>>().join(" ")
    }

    #[track_caller]
    fn check(cases: &[(&str, &str)]) {
        for (body, expected) in cases {
            assert_eq!(read(body), *expected, "{body:?}");
        }
    }

    #[test]
    fn command_is_the_first_word_of_a_line() {
        check(&[
            ("/rebuild", "/rebuild"),
            ("/rebuild\n", "/rebuild"),
            ("Hello,\n/rebuild\nThanks", "/rebuild"),
            ("Hello,\n\n/rebuild\n\nThanks", "/rebuild"),
            ("please /rebuild", ""),
            ("/ReBuild", "/rebuild"),
            ("/CLOSE-AND-REOPEN", "/close-and-reopen"),
            ("", ""),
            ("/", ""),
            ("\u{feff}/rebuild", "/rebuild"),
            ("\u{feff}\u{feff}/rebuild", ""),
            (" /rebuild", "/rebuild"),
            ("   /rebuild", "/rebuild"),
            ("text\n   /rebuild", "/rebuild"),
            ("text\n    /rebuild", ""),
            ("text\n\t/rebuild", ""),
            ("/rebuild\n\n---\nDanny", "/rebuild"),
            ("/rebuild\n\n-- \nDanny", "/rebuild"),
            ("\\/rebuild", ""),
            ("&#47;rebuild", ""),
            ("*/rebuild*", ""),
            ("[/rebuild](x)", ""),
        ]);
    }

    #[test]
    fn rest_of_the_line_is_kept_as_args() {
        check(&[
            ("/hold until Monday", "/hold(until Monday)"),
            ("/hold\tuntil   Monday  \nnot this", "/hold(until   Monday)"),
            ("/hold\u{a0}x", "/hold(x)"),
            ("/hold see `foo` and <!-- bar -->", "/hold(see `foo` and <!-- bar -->)"),
            ("/hold /cancel", "/hold(/cancel)"),
            ("/hold   ", "/hold"),
        ]);
        let long = format!("/hold {}", "é".repeat(ARGS_MAX_CHARS + 1));
        assert_eq!(parse(&long), [ParsedCommand::Known { command: Command::Hold, args: "é".repeat(200) }]);
    }

    #[test]
    fn punctuation_behind_a_command_is_forgiven() {
        check(&[
            ("/rebuild.", "/rebuild"),
            ("/rebuild, please", "/rebuild(please)"),
            ("/Rebuild!!", "/rebuild"),
            ("/hold... until Monday.", "/hold(until Monday.)"),
            ("/rebuild.now", ""),
            ("/rebuild?", ""),
            ("/rebuild:", ""),
            (".", ""),
        ]);
    }

    #[test]
    fn table_is_not_a_command() {
        check(&[
            ("a | b\n---|---\n/cancel | closes it", ""),
            ("| a | b |\n|---|---|\n/cancel | closes it\n/merge\n\n/hold", "/hold"),
            ("/cancel | closes it\n---|---\nx | y", ""),
            ("Commands:\n\n/cancel\n\n/merge | x\n:-- | --:\n", "/cancel"),
            ("- a | b\n  ---|---\n  /cancel | x", ""),
            ("/hold a | b", "/hold(a | b)"),
            ("/rebuild | x\n/hold", "/rebuild(| x) /hold"),
        ]);
    }

    #[test]
    fn formula_is_not_a_command() {
        check(&[
            ("$$\n/cancel\n$$", ""),
            ("$$\nx\n/cancel\ny\n$$\n/hold", "/hold"),
            ("Text $$x\n/cancel\n$$", ""),
            ("$$\n/cancel", "/cancel"),
            ("It costs $5 or $6.\n/rebuild", "/rebuild"),
            ("`$$`\n/rebuild\n`$$`", "/rebuild"),
        ]);
    }

    #[test]
    fn heading_is_not_a_command() {
        check(&[
            ("# /rebuild", ""),
            ("/cancel\n---", ""),
            ("/cancel\n===\n/hold", "/hold"),
            ("Text\n/cancel\nmore\n-- \n/hold", "/hold"),
            ("/cancel\n\n===", "/cancel"),
            ("- a\n\n  /cancel\n  ---", ""),
        ]);
    }

    #[test]
    fn command_with_attached_characters_is_ignored() {
        check(&[
            ("/rebuild/x", ""),
            ("/rebuild`x`", ""),
            ("/rebuild**now**", ""),
            ("/rebuild\u{200b}", ""),
            ("/rebuild_all", ""),
            ("/usr/bin/foo", ""),
            ("//rebuild", ""),
            ("/rebuild-all", "?/rebuild-all"),
        ]);
    }

    #[test]
    fn quoted_text_is_not_a_command() {
        check(&[
            ("> /hold", ""),
            (">/hold", ""),
            ("> > /hold", ""),
            ("> a\n/hold", ""), // GitHub shows the lazy line inside the quote.
            ("> /hold\n\n/resume", "/resume"),
            ("> /hold\n> - /cancel\n>\n> /merge\n\n/resume", "/resume"),
            ("- > /hold", ""),
            ("- a\n  > /hold\n  >\n  > /cancel", ""),
            ("- a\n  > > /hold\n\n/resume", "/resume"),
            ("1. a\n   > /hold\n\n   /resume", "/resume"),
            ("On Monday Ann wrote:\n> /cancel\n\nNo. Rather\n/rebuild", "/rebuild"),
        ]);
    }

    #[test]
    fn code_is_not_a_command() {
        check(&[
            ("`/rebuild`", ""),
            ("`a\n/rebuild\nb`", ""),
            ("``a\n/rebuild`\n/cancel\nb``", ""),
            ("`a\n/rebuild", "/rebuild"),
            ("    /rebuild", ""),
            ("\t/rebuild", ""),
            ("a\n\n    /rebuild\n\nb", ""),
            ("a\n\n    x\n/rebuild", "/rebuild"),
            ("```\n/rebuild\n```", ""),
            ("```sh\n/rebuild\n```\n/hold", "/hold"),
            ("~~~\n/rebuild\n~~~\n/hold", "/hold"),
            ("~~~\n```\n/rebuild\n~~~\n/hold", "/hold"),
            ("````\n```\n/rebuild\n````\n/hold", "/hold"),
            ("```\n/rebuild\n\n/hold", ""),
            ("~~~\n/rebuild", ""),
            ("text\n```\n/rebuild", ""),
            ("- a\n  ```\n  /rebuild\n  ```\n", ""),
        ]);
    }

    #[test]
    fn hidden_or_struck_out_text_is_not_a_command() {
        check(&[
            ("<!--\n/rebuild\n-->", ""),
            ("<!-- x -->\n/rebuild", "/rebuild"),
            ("<!--\n\n/rebuild", ""),
            ("text <!--\n/rebuild\n--> text", ""),
            ("<div>\n/rebuild\n</div>", ""),
            ("<pre>\n\n/rebuild\n\n</pre>", ""),
            ("<details>\n\n/rebuild\n\n</details>", "/rebuild"),
            ("text <b title=\"\n/rebuild\n\">x</b>", ""),
            ("[a]:\n/rebuild\n", ""),
            ("[a](\n/rebuild\n)", ""),
            ("![\n/rebuild\n](x)", ""),
            ("~~a\n/rebuild\nb~~", ""),
            ("~~a~~\n/rebuild", "/rebuild"),
            ("![a](x)\n/rebuild", "/rebuild"),
        ]);
    }

    #[test]
    fn list_item_is_not_a_command_unless_on_its_own_line() {
        check(&[
            ("- /rebuild", ""),
            ("* /rebuild", ""),
            ("1. /rebuild", ""),
            ("- [ ] /rebuild", ""),
            ("- a\n  /rebuild", "/rebuild"),
            ("- a\n- b\n/rebuild", "/rebuild"),
            ("- a\n\n/rebuild", "/rebuild"),
        ]);
    }

    #[test]
    fn all_line_endings_are_accepted() {
        check(&[
            ("/rebuild\r\n/hold until Monday\r\n", "/rebuild /hold(until Monday)"),
            ("Hi\r\n\r\n/rebuild\r\n", "/rebuild"),
            ("```\r\n/rebuild\r\n```\r\n/hold\r\n", "/hold"),
            ("> /rebuild\r\n\r\n/hold\r\n", "/hold"),
            ("/rebuild\r/hold", "/rebuild /hold"),
            ("/rebuild\\\n/hold", "/hold"),
            ("/rebuild  \n/hold", "/rebuild /hold"),
        ]);
    }

    #[test]
    fn several_commands_keep_their_order_without_duplicates() {
        check(&[
            ("/merge\n/update-branch\n/rebuild", "/merge /update-branch /rebuild"),
            ("/hold first\n/rebuild\n/HOLD second", "/hold(first) /rebuild"),
            ("/holdd\n/HOLDD\n/hold", "?/holdd=/hold /hold"),
        ]);
    }

    #[test]
    fn unknown_word_has_the_nearest_command_if_similar() {
        check(&[
            ("/rebuid", "?/rebuid=/rebuild"),
            ("/REBUID now", "?/REBUID=/rebuild"),
            ("/reubild", "?/reubild=/rebuild"),
            ("/rebulds", "?/rebulds"),
            ("/merg", "?/merg=/merge"),
            ("/hodl", "?/hodl=/hold"),
            ("/recheck-polcy", "?/recheck-polcy=/recheck-policy"),
            ("/recheck-aproval", "?/recheck-aproval=/recheck-approval"),
            ("/close-reopen", "?/close-reopen=/close-and-reopen"),
            ("/close-ropen", "?/close-ropen"),
            ("/update", "?/update=/update-branch"),
            ("/close-and", "?/close-and=/close-and-reopen"),
            ("/recheck", "?/recheck=/recheck-policy"),
            ("/re", "?/re"),
            ("/etc is missing", "?/etc"),
            ("/home", "?/home"),
            ("/static", "?/static"),
            ("/lgtm", "?/lgtm"),
        ]);
    }

    #[test]
    fn nearest_of_several_similar_commands_is_suggested() {
        // Three edits from `/recheck-policy`, which comes first in the list, but two from this one.
        assert_eq!(nearest("/recheck-pold"), Some(Command::RecheckSod));
        assert_eq!(nearest("/"), None);
        assert_eq!(nearest(""), None);
        assert_eq!(nearest(&"/rebuild".repeat(100_000)), None);
    }

    #[test]
    fn only_words_that_look_like_a_command_are_reported() {
        let word = |letters: usize| format!("/{}", "x".repeat(letters));
        assert_eq!(read(&word(1)), "");
        assert_eq!(read(&word(2)), format!("?{}", word(2)));
        assert_eq!(read(&word(30)), format!("?{}", word(30)));
        assert_eq!(read(&word(31)), "");
        check(&[("/a-b", "?/a-b"), ("/-ab", ""), ("/--", ""), ("/a1b", ""), ("/día", ""), ("/a.b", ""), ("abc", "")]);
    }

    #[test]
    fn at_most_ten_commands_and_ten_unknown_words_are_read() {
        let names: Vec<&str> = Command::ALL.into_iter().map(Command::name).collect();
        assert_eq!(read(&names[..10].join("\n")), names[..10].join(" "));
        assert_eq!(read(&names[..11].join("\n")), names[..10].join(" "));
        let paths: Vec<String> = ('a'..='k').map(|c| format!("/x{c}")).collect();
        let shown: Vec<String> = paths[..10].iter().map(|p| format!("?{p}")).collect();
        assert_eq!(read(&paths.join("\n")), shown.join(" "));
        assert_eq!(read(&format!("{}\n/rebuild", paths.join("\n"))), format!("{} /rebuild", shown.join(" ")));
    }

    #[test]
    fn text_beyond_the_limit_is_not_read() {
        let fits = format!("{}\n/rebuild", "x".repeat(BODY_MAX_BYTES - 9));
        assert_eq!((fits.len(), read(&fits).as_str()), (BODY_MAX_BYTES, "/rebuild"));
        assert_eq!(BODY_MAX_BYTES, 65_536);
        // With one byte more, the last word is dropped.
        assert_eq!(read(&format!("x{fits}")), "");
        assert_eq!(read(&format!("{fits}-nothing")), "");
        assert_eq!(read(&format!("/hold\n{fits}-nothing")), "/hold");
        // A limit inside a character, and a limit in a body without spaces.
        assert_eq!(read(&format!("/hold \n{}", "é".repeat(BODY_MAX_BYTES))), "/hold");
        assert_eq!(read(&"/rebuild".repeat(BODY_MAX_BYTES)), "");
        let megabyte = format!("/rebuild {}\n/hold", "x".repeat(1 << 20));
        assert_eq!(read(&megabyte), "/rebuild");
    }

    #[test]
    fn hostile_markdown_is_parsed_in_time() {
        for piece in
            ["*a ", "[", "`a ", "> ", "- ", "![", "<!--", "\n/a", "a\\\n", "[a]:\n/x\n", "$$", "$a ", "|", "a|b\n-|-\n"]
        {
            let body = format!("/rebuild\n\n{}", piece.repeat(BODY_MAX_BYTES / piece.len()));
            assert_eq!(read(&body), "/rebuild", "{piece:?}");
        }
    }

    fn config() -> ProptestConfig {
        ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() }
    }

    /// Bodies made of relevant pieces, because arbitrary strings rarely contain any.
    fn markdown() -> impl Strategy<Value = String> {
        let pieces = proptest::sample::select(vec![
            "/rebuild", "/hold x", "/cancle", "\n", "\n\n", "\r\n", "> ", "- ", "    ", "\t", "```", "~~~", "`",
            "<!--", "-->", "<div>", "~~", "$$", "---|---", " | ", "===", "[a]: ", "![", "](b)", "é", "\u{feff}", "\0",
            "text ",
        ]);
        proptest::collection::vec(pieces, 0..40).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(config())]

        #[test]
        fn any_body_parses_the_same_twice(body in prop_oneof![any::<String>(), markdown()]) {
            let asked = parse(&body);
            prop_assert_eq!(&asked, &parse(&body));
            for one in asked {
                let typed = match &one {
                    ParsedCommand::Known { command, .. } => command.name(),
                    ParsedCommand::Unknown { word, .. } => word,
                };
                prop_assert!(body.to_ascii_lowercase().contains(&typed.to_ascii_lowercase()));
            }
        }

        #[test]
        fn text_in_a_code_fence_is_never_a_command(
            before in "([a-z ]{0,8}\n){0,3}",
            fence in "`{3,5}|~{3,5}",
            inside in proptest::collection::vec(
                proptest::sample::select(vec!["/rebuild", "/cancel now", "", "text", "> /hold", "``", "~~", "/merg"]),
                0..8,
            ),
            is_closed in any::<bool>(),
        ) {
            let end = if is_closed { fence.as_str() } else { "" };
            let body = format!("{before}{fence}\n{}\n{end}", inside.join("\n"));
            prop_assert_eq!(parse(&body), []);
        }

        #[test]
        fn command_in_its_own_paragraph_is_always_found(before in "([a-zé .,>-]{0,12}\n){0,4}", after in "[a-z \n]{0,20}") {
            let asked = parse(&format!("{before}\n/rebuild\n\n{after}"));
            prop_assert_eq!(asked, [ParsedCommand::Known { command: Command::Rebuild, args: String::new() }]);
        }
    }
}
