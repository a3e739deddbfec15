//! The macros. Each parses fields and arguments one by one, as `tracing` writes them, and declares a
//! static [`Site`](super::Site).

/// Records an error. See [`log`](crate::log).
#[macro_export]
macro_rules! log_error {
    ($($arg:tt)+) => { $crate::log_record!(ERROR; $($arg)+) };
}

/// Records a warning. See [`log`](crate::log).
#[macro_export]
macro_rules! log_warn {
    ($($arg:tt)+) => { $crate::log_record!(WARN; $($arg)+) };
}

/// Records what an operator may want to know. See [`log`](crate::log).
#[macro_export]
macro_rules! log_info {
    ($($arg:tt)+) => { $crate::log_record!(INFO; $($arg)+) };
}

/// Records what helps to find a fault. See [`log`](crate::log).
#[macro_export]
macro_rules! log_debug {
    ($($arg:tt)+) => { $crate::log_record!(DEBUG; $($arg)+) };
}

/// Records each step. See [`log`](crate::log).
#[macro_export]
macro_rules! log_trace {
    ($($arg:tt)+) => { $crate::log_record!(TRACE; $($arg)+) };
}

/// A level, an optional target, and what there is to say.
#[doc(hidden)]
#[macro_export]
macro_rules! log_record {
    ($level:ident; target: $target:expr, $($rest:tt)+) => {
        $crate::log_fields!($level $target; []; $($rest)+)
    };
    ($level:ident; $($rest:tt)+) => {
        $crate::log_fields!($level ::core::module_path!(); []; $($rest)+)
    };
}

/// Moves fields into the brackets, up to the message.
#[doc(hidden)]
#[macro_export]
macro_rules! log_fields {
    ($level:ident $target:expr; $fields:tt; $text:literal $(, $($rest:tt)*)?) => {
        $crate::log_arguments!($level $target; $fields; $text; []; $($($rest)*)?)
    };
    ($level:ident $target:expr; $fields:tt;) => {
        $crate::log_site!($level $target; $fields; ""; [])
    };
    ($level:ident $target:expr; [$($f:tt)*]; % $name:ident $(, $($rest:tt)*)?) => {
        $crate::log_fields!($level $target; [$($f)* ($name Display $name)]; $($($rest)*)?)
    };
    ($level:ident $target:expr; [$($f:tt)*]; ? $name:ident $(, $($rest:tt)*)?) => {
        $crate::log_fields!($level $target; [$($f)* ($name Debug $name)]; $($($rest)*)?)
    };
    ($level:ident $target:expr; [$($f:tt)*]; $name:ident = % $value:expr $(, $($rest:tt)*)?) => {
        $crate::log_fields!($level $target; [$($f)* ($name Display $value)]; $($($rest)*)?)
    };
    ($level:ident $target:expr; [$($f:tt)*]; $name:ident = ? $value:expr $(, $($rest:tt)*)?) => {
        $crate::log_fields!($level $target; [$($f)* ($name Debug $value)]; $($($rest)*)?)
    };
    ($level:ident $target:expr; [$($f:tt)*]; $name:ident = $value:expr $(, $($rest:tt)*)?) => {
        $crate::log_fields!($level $target; [$($f)* ($name Plain $value)]; $($($rest)*)?)
    };
    ($level:ident $target:expr; [$($f:tt)*]; $name:ident $(, $($rest:tt)*)?) => {
        $crate::log_fields!($level $target; [$($f)* ($name Plain $name)]; $($($rest)*)?)
    };
}

/// Moves the arguments of the message into the brackets.
#[doc(hidden)]
#[macro_export]
macro_rules! log_arguments {
    ($level:ident $target:expr; $fields:tt; $text:literal; $args:tt;) => {
        $crate::log_site!($level $target; $fields; $text; $args)
    };
    ($level:ident $target:expr; $f:tt; $text:literal; [$($a:tt)*]; $name:ident = $value:expr $(, $($rest:tt)*)?) => {
        $crate::log_arguments!($level $target; $f; $text; [$($a)* ([$name =] $value)]; $($($rest)*)?)
    };
    ($level:ident $target:expr; $f:tt; $text:literal; [$($a:tt)*]; $value:expr $(, $($rest:tt)*)?) => {
        $crate::log_arguments!($level $target; $f; $text; [$($a)* ([] $value)]; $($($rest)*)?)
    };
}

/// The site, and what is done there.
#[doc(hidden)]
#[macro_export]
macro_rules! log_site {
    (
        $level:ident $target:expr;
        [$(($name:ident $style:ident $value:expr))*];
        $text:literal;
        [$(([$($arg_name:tt)*] $arg:expr))*]
    ) => {
        if $crate::log::is_level_on($crate::log::private::Level::$level) {
            static SITE: $crate::log::Site = $crate::log::Site::new(
                $crate::log::private::Metadata::new(
                    ::core::concat!("event ", ::core::file!(), ":", ::core::line!()),
                    $target,
                    $crate::log::private::Level::$level,
                    ::core::option::Option::Some(::core::file!()),
                    ::core::option::Option::Some(::core::line!()),
                    ::core::option::Option::Some(::core::module_path!()),
                    $crate::log::private::FieldSet::new(
                        &["message" $(, ::core::stringify!($name))*],
                        $crate::log::private::Identifier(&SITE),
                    ),
                    $crate::log::private::Kind::EVENT,
                ),
                &[$($crate::log::private::Style::$style),*],
                $text,
                |values, f| {
                    #[allow(unused)]
                    let mut values = values.iter();
                    f.write_fmt(::core::format_args!(
                        $text
                        $(, $($arg_name)* $crate::log_next!(values $arg))*
                    ))
                },
            );
            if SITE.is_on() {
                $crate::log::record(&SITE, &mut || $crate::log::Values::new([
                    $($crate::log::Value::from($value),)*
                    $($crate::log::Value::from($arg),)*
                ]));
            }
        }
    };
}

/// The next value, for each argument.
#[doc(hidden)]
#[macro_export]
macro_rules! log_next {
    ($values:ident $arg:expr) => {
        $crate::log::private::next(&mut $values)
    };
}
