//! A GraphQL document, parsed once and kept in a shape that is quick to walk: fragments are in place, one operation only.

use graphql_parser::query::{self as ast, Definition, OperationDefinition, TypeCondition};
use serde_json::{Map, Value};

/// What is asked for.
#[derive(Debug, Clone)]
pub(crate) struct Query {
    pub(crate) name: Option<String>,
    pub(crate) mutation: bool,
    pub(crate) selections: Vec<Selection>,
    /// Defaults of variables.
    pub(crate) defaults: Map<String, Value>,
}

/// A field, or fields of one type only.
#[derive(Debug, Clone)]
pub(crate) enum Selection {
    Field(Field),
    On(Option<String>, Vec<Condition>, Vec<Selection>),
}

#[derive(Debug, Clone)]
pub(crate) struct Field {
    /// Its name in the answer.
    pub(crate) key: String,
    pub(crate) name: String,
    arguments: Vec<(String, Argument)>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) selections: Vec<Selection>,
}

/// `@include` or `@skip`: wanted if the argument equals this.
#[derive(Debug, Clone)]
pub(crate) struct Condition {
    argument: Argument,
    wanted: bool,
}

#[derive(Debug, Clone)]
enum Argument {
    Variable(String),
    Given(Value),
    List(Vec<Argument>),
    Object(Vec<(String, Argument)>),
}

impl Argument {
    fn value(&self, variables: &Map<String, Value>) -> Value {
        match self {
            Self::Variable(name) => variables.get(name).cloned().unwrap_or(Value::Null),
            Self::Given(value) => value.clone(),
            Self::List(items) => items.iter().map(|item| item.value(variables)).collect(),
            Self::Object(fields) => fields.iter().map(|(name, field)| (name.clone(), field.value(variables))).collect(),
        }
    }
}

impl Field {
    /// An argument; null if it is not given.
    pub(crate) fn argument(&self, name: &str, variables: &Map<String, Value>) -> Value {
        self.arguments.iter().find(|(known, _)| known == name).map_or(Value::Null, |(_, it)| it.value(variables))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.arguments.iter().any(|(known, _)| known == name)
    }
}

/// Whether all conditions hold.
pub(crate) fn holds(conditions: &[Condition], variables: &Map<String, Value>) -> bool {
    conditions.iter().all(|it| it.argument.value(variables).as_bool() == Some(it.wanted))
}

/// Fragments inside fragments, and no further: a circle must end.
const DEPTH: usize = 24;

struct Reader<'a> {
    fragments: Vec<&'a ast::FragmentDefinition<'a, String>>,
}

/// Reads a document.
///
/// # Errors
/// It cannot be parsed, has no operation or several, or its fragments are missing or run in circles.
pub(crate) fn read(text: &str) -> Result<Query, String> {
    let document = graphql_parser::parse_query::<String>(text).map_err(|error| error.to_string())?;
    let mut reader = Reader { fragments: Vec::new() };
    let mut operations = Vec::new();
    for definition in &document.definitions {
        match definition {
            Definition::Operation(operation) => operations.push(operation),
            Definition::Fragment(fragment) => reader.fragments.push(fragment),
        }
    }
    let [operation] = operations.as_slice() else {
        return Err("An operation name is required".to_owned());
    };
    let (name, mutation, variables, set) = match operation {
        OperationDefinition::SelectionSet(set) => (None, false, &[][..], set),
        OperationDefinition::Query(it) => (it.name.clone(), false, &it.variable_definitions[..], &it.selection_set),
        OperationDefinition::Mutation(it) => (it.name.clone(), true, &it.variable_definitions[..], &it.selection_set),
        OperationDefinition::Subscription(_) => return Err("Subscriptions are not supported".to_owned()),
    };
    let mut defaults = Map::new();
    for variable in variables {
        if let Some(default) = &variable.default_value {
            defaults.insert(variable.name.clone(), argument(default).value(&Map::new()));
        }
    }
    Ok(Query { name, mutation, selections: reader.selections(set, 0)?, defaults })
}

impl<'a> Reader<'a> {
    fn selections(&self, set: &ast::SelectionSet<'a, String>, depth: usize) -> Result<Vec<Selection>, String> {
        if depth > DEPTH {
            return Err("Fragments run in circles, or the query is too deep".to_owned());
        }
        set.items.iter().map(|item| self.selection(item, depth + 1)).collect()
    }

    fn selection(&self, item: &ast::Selection<'a, String>, depth: usize) -> Result<Selection, String> {
        Ok(match item {
            ast::Selection::Field(field) => Selection::Field(Field {
                key: field.alias.clone().unwrap_or_else(|| field.name.clone()),
                name: field.name.clone(),
                arguments: field.arguments.iter().map(|(name, value)| (name.clone(), argument(value))).collect(),
                conditions: conditions(&field.directives),
                selections: self.selections(&field.selection_set, depth)?,
            }),
            ast::Selection::InlineFragment(fragment) => {
                let on = fragment.type_condition.as_ref().map(|TypeCondition::On(name)| name.clone());
                Selection::On(on, conditions(&fragment.directives), self.selections(&fragment.selection_set, depth)?)
            }
            ast::Selection::FragmentSpread(spread) => {
                let known = self.fragments.iter().find(|fragment| fragment.name == spread.fragment_name);
                let fragment =
                    known.ok_or_else(|| format!("Fragment {} was used, but not defined", spread.fragment_name))?;
                let TypeCondition::On(on) = &fragment.type_condition;
                Selection::On(
                    Some(on.clone()),
                    conditions(&spread.directives),
                    self.selections(&fragment.selection_set, depth)?,
                )
            }
        })
    }
}

fn conditions(directives: &[ast::Directive<'_, String>]) -> Vec<Condition> {
    let of = |directive: &ast::Directive<'_, String>| {
        let wanted = match directive.name.as_str() {
            "include" => true,
            "skip" => false,
            _ => return None,
        };
        directive.arguments.first().map(|(_, value)| Condition { argument: argument(value), wanted })
    };
    directives.iter().filter_map(of).collect()
}

fn argument(value: &ast::Value<'_, String>) -> Argument {
    match value {
        ast::Value::Variable(name) => Argument::Variable(name.clone()),
        ast::Value::Int(number) => Argument::Given(Value::from(number.as_i64())),
        ast::Value::Float(number) => Argument::Given(Value::from(*number)),
        ast::Value::String(text) => Argument::Given(Value::from(text.as_str())),
        ast::Value::Enum(text) => Argument::Given(Value::from(text.as_str())),
        ast::Value::Boolean(given) => Argument::Given(Value::from(*given)),
        ast::Value::Null => Argument::Given(Value::Null),
        ast::Value::List(items) => Argument::List(items.iter().map(argument).collect()),
        ast::Value::Object(fields) => {
            Argument::Object(fields.iter().map(|(name, value)| (name.clone(), argument(value))).collect())
        }
    }
}
