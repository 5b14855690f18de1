//! The seed corpus, and mutations of it that are the same in every run: of its bytes, and of its
//! tokens, which get further.

use std::{fs, path::PathBuf};

use proc_macro2::{Group, TokenStream, TokenTree};

use super::entry::attribute_text;

const MUTATIONS: usize = 150;

/// Seeds are those of the repository; a fuzzer reads them too.
fn seeds() -> Vec<(PathBuf, String)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("src/tests/corpus");
    let mut seeds: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect();
    seeds.sort();
    assert!(seeds.len() >= 15);
    seeds
}

/// SplitMix64: numbers that are the same on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % end as u64) as usize
    }
}

/// Leaves out, repeats, moves or replaces a token, somewhere in the tree.
fn mutate(tokens: TokenStream, random: &mut Random) -> TokenStream {
    const OTHERS: &str = r#", = ( ) [x] {} "24h" "" 'a' b"x" 0 -1 1e9 scope ttl required :: < & ! async fn self crate"#;
    let mut all: Vec<TokenTree> = tokens.into_iter().collect();
    let at = random.below(all.len() + 1);
    if let Some(TokenTree::Group(group)) = all.get(at)
        && random.below(3) > 0
    {
        all[at] = Group::new(group.delimiter(), mutate(group.stream(), random)).into();
        return all.into_iter().collect();
    }
    let others: Vec<TokenTree> = OTHERS.parse::<TokenStream>().unwrap().into_iter().collect();
    let other = others[random.below(others.len())].clone();
    match random.below(4) {
        0 if at < all.len() => drop(all.remove(at)),
        1 if at < all.len() => all.insert(at, all[at].clone()),
        2 if at < all.len() => all[at] = other,
        _ => all.insert(at, other),
    }
    all.into_iter().collect()
}

#[test]
fn whatever_the_tokens_the_attribute_expands_or_says_what_is_wrong() {
    for (path, seed) in seeds() {
        let hold = |what: &str, entry: &dyn Fn()| {
            let entry = std::panic::AssertUnwindSafe(entry);
            let outcome = std::panic::catch_unwind(entry);
            assert!(outcome.is_ok(), "{}: {what}", path.display());
        };
        hold(&seed, &|| attribute_text(seed.as_bytes()));
        let mut random = Random(seed.len() as u64);
        for _ in 0..MUTATIONS {
            let mut bytes = seed.clone().into_bytes();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len());
                match random.below(3) {
                    0 => drop(bytes.remove(at)),
                    1 => bytes.insert(at, b"\"(){}[],=#:'0az& \n"[random.below(18)]),
                    _ => bytes[at] = b"\"(){}[],=#:'0az& \n"[random.below(18)],
                }
            }
            hold(&bytes.escape_ascii().to_string(), &|| {
                attribute_text(&bytes)
            });
        }
        let (args, item) = seed.split_once("\n---\n").unwrap();
        let (args, item): (TokenStream, TokenStream) =
            (args.parse().unwrap(), item.parse().unwrap());
        for _ in 0..MUTATIONS {
            let (mut args, mut item) = (args.clone(), item.clone());
            for _ in 0..=random.below(3) {
                if random.below(2) == 0 {
                    args = mutate(args, &mut random);
                } else {
                    item = mutate(item, &mut random);
                }
            }
            // As text, which is all that a compiler lets through.
            let text = format!("{args}\n---\n{item}");
            hold(&text, &|| attribute_text(text.as_bytes()));
        }
    }
}
