//! Enums whose variant names are fixed, because tables, logs and the API use them.

/// Declares such an enum. Each name is written once, beside its variant; serde, `Display` and `name` all use it.
#[macro_export]
macro_rules! named {
    ($(#[$meta:meta])* pub enum $enum:ident { $($(#[$about:meta])* $variant:ident = $name:literal,)+ }) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, ::serde::Serialize, ::serde::Deserialize)]
        $(#[$meta])*
        pub enum $enum {
            $($(#[$about])* #[serde(rename = $name)] $variant,)+
        }

        impl $enum {
            /// All variants, in the order of their declaration.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$variant),+];

            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }

        impl ::std::fmt::Display for $enum {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }
    };
}
