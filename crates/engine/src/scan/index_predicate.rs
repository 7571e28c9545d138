//! What a condition asks of an index.
//!
//! # Invariants
//! - The rows for which the condition is true are among the rows that answer the question.

use std::sync::Arc;

use datafusion::common::ScalarValue;
use datafusion::logical_expr::Operator;
use datafusion::physical_expr::expressions::{
    BinaryExpr, CaseExpr, Column, InListExpr, LikeExpr, Literal,
};
use datafusion::physical_expr::{PhysicalExpr, ScalarFunctionExpr, split_conjunction};
use uplake_table::{IndexKind, IndexSpec, Question, key_of_f64, key_of_i64};

use crate::functions::match_words::MatchWords;
use crate::sql::id_set::{IdSet, InIdSet, integer};

/// What makes the next character of a LIKE pattern literal; the engine knows no other.
const LIKE_ESCAPE: char = '\\';

/// The question of one condition, if the table has an index for it. An index that answers it exactly
/// has applied the condition.
pub(crate) fn question(condition: &Arc<dyn PhysicalExpr>, specs: &[IndexSpec]) -> Option<Question> {
    indexed(ask(condition)?, specs)
}

/// The question of what a join knows of its build side, which is applied again by the join: rows that
/// answer it need not satisfy the condition.
pub(crate) fn join_question(
    condition: &Arc<dyn PhysicalExpr>,
    specs: &[IndexSpec],
) -> Option<Question> {
    let mut values = Values::default();
    let found = match condition.downcast_ref::<CaseExpr>() {
        Some(case) => values.collect_case(case),
        None => values.collect(condition),
    };
    indexed(found.and_then(|()| values.question())?, specs)
}

fn indexed(asked: Question, specs: &[IndexSpec]) -> Option<Question> {
    let wanted: &[IndexKind] = match &asked {
        Question::Integers { .. } | Question::Strings { .. } => &[IndexKind::Ids],
        Question::Words { .. } => &[IndexKind::Words],
        Question::Like { .. } => &[IndexKind::Ngrams, IndexKind::Words],
        Question::Between { .. } => &[IndexKind::Zones],
    };
    let answers = |s: &IndexSpec| s.column == asked.column() && wanted.contains(&s.kind);
    specs.iter().any(answers).then_some(asked)
}

fn ask(condition: &Arc<dyn PhysicalExpr>) -> Option<Question> {
    if let Some(like) = condition.downcast_ref::<LikeExpr>() {
        if like.negated() {
            return None;
        }
        let pattern = text(literal(like.pattern())?)?;
        return Some(like_question(column(like.expr())?, pattern));
    }
    if let Some(call) = condition.downcast_ref::<ScalarFunctionExpr>() {
        return ask_function(call);
    }
    if let Some(range) = ask_range(condition) {
        return Some(range);
    }
    let mut values = Values::default();
    values.collect(condition)?;
    values.question()
}

/// `x < 5`, `5 <= x`: NaN is above every number, so it is in each range without an upper end.
fn ask_range(condition: &Arc<dyn PhysicalExpr>) -> Option<Question> {
    let binary = condition.downcast_ref::<BinaryExpr>()?;
    let (left, right) = (binary.left(), binary.right());
    let (of, value, op) = match literal(right) {
        Some(value) => (left, value, *binary.op()),
        None => (right, literal(left)?, binary.op().swap()?),
    };
    let key = match value {
        ScalarValue::Float64(Some(value)) => key_of_f64(*value),
        ScalarValue::Float32(Some(value)) => key_of_f64(f64::from(*value)),
        _ => return None,
    };
    let keys = match op {
        Operator::Lt | Operator::LtEq => 0..=key,
        Operator::Gt | Operator::GtEq => key..=u64::MAX,
        Operator::Eq => key..=key,
        _ => return None,
    };
    Some(Question::Between { column: column(of)?, keys })
}

fn ask_function(call: &ScalarFunctionExpr) -> Option<Question> {
    let arguments = call.args();
    let column = column(arguments.first()?)?;
    if let Some(found) = call.fun().inner().downcast_ref::<InIdSet>() {
        return Some(match found.set.as_ref() {
            IdSet::Integers { keys, .. } => Question::Integers { column, keys: Arc::clone(keys) },
            IdSet::Texts { values, .. } => Question::Strings { column, values: Arc::clone(values) },
        });
    }
    let words = text(literal(arguments.get(1)?)?)?;
    if call.fun().inner().is::<MatchWords>() {
        return Some(Question::Words { column, text: words });
    }
    (call.name() == "contains").then(|| {
        let mut pattern = String::from("%");
        for c in words.chars() {
            if matches!(c, '%' | '_' | LIKE_ESCAPE) {
                pattern.push(LIKE_ESCAPE);
            }
            pattern.push(c);
        }
        pattern.push('%');
        like_question(column, pattern)
    })
}

fn like_question(column: String, pattern: String) -> Question {
    Question::Like { column, pattern, escape: Some(LIKE_ESCAPE) }
}

/// The values of `a = 1 OR a IN (2, 3)`: of one column, of one kind.
#[derive(Default)]
struct Values {
    column: Option<String>,
    keys: Vec<u64>,
    texts: Vec<String>,
}

impl Values {
    fn collect(&mut self, condition: &Arc<dyn PhysicalExpr>) -> Option<()> {
        if let Some(list) = condition.downcast_ref::<InListExpr>() {
            if list.negated() {
                return None;
            }
            self.set_column(list.expr())?;
            return list.list().iter().try_for_each(|value| self.push(literal(value)?));
        }
        let binary = condition.downcast_ref::<BinaryExpr>()?;
        match binary.op() {
            Operator::Or => {
                self.collect(binary.left())?;
                self.collect(binary.right())
            }
            Operator::Eq => {
                let (left, right) = (binary.left(), binary.right());
                let (column, value) =
                    if literal(right).is_some() { (left, right) } else { (right, left) };
                self.set_column(column)?;
                self.push(literal(value)?)
            }
            _ => None,
        }
    }

    /// What a join on several partitions knows of its build side: a list for each partition, beside
    /// the list's bounds.
    fn collect_case(&mut self, case: &CaseExpr) -> Option<()> {
        let branches = case.when_then_expr().iter().map(|(_, then)| then).chain(case.else_expr());
        for branch in branches {
            if literal(branch) == Some(&ScalarValue::Boolean(Some(false))) {
                continue;
            }
            split_conjunction(branch).into_iter().find_map(|part| {
                let mut found = Self { column: self.column.clone(), ..Self::default() };
                found.collect(part)?;
                self.column = found.column;
                self.keys.append(&mut found.keys);
                self.texts.append(&mut found.texts);
                Some(())
            })?;
        }
        Some(())
    }

    fn set_column(&mut self, expr: &Arc<dyn PhysicalExpr>) -> Option<()> {
        let found = column(expr)?;
        match &self.column {
            Some(known) if *known != found => None,
            _ => {
                self.column = Some(found);
                Some(())
            }
        }
    }

    /// NULL is equal to nothing, so no row has it.
    fn push(&mut self, value: &ScalarValue) -> Option<()> {
        if value.is_null() {
            return Some(());
        }
        match integer(value) {
            Some(value) => self.keys.push(key_of_i64(value)),
            None => self.texts.push(text(value)?),
        }
        Some(())
    }

    fn question(self) -> Option<Question> {
        let column = self.column?;
        match (self.keys.is_empty(), self.texts.is_empty()) {
            (true, true) => None,
            (false, true) => Some(Question::Integers { column, keys: Arc::new(self.keys) }),
            (true, false) => Some(Question::Strings { column, values: Arc::new(self.texts) }),
            (false, false) => None,
        }
    }
}

fn column(expr: &Arc<dyn PhysicalExpr>) -> Option<String> {
    expr.downcast_ref::<Column>().map(|column| column.name().to_owned())
}

fn literal(expr: &Arc<dyn PhysicalExpr>) -> Option<&ScalarValue> {
    expr.downcast_ref::<Literal>().map(Literal::value)
}

fn text(value: &ScalarValue) -> Option<String> {
    value.try_as_str().flatten().map(str::to_owned)
}
