//! Wires the admin function and runs it behind the Lambda runtime.

fn main() {}
