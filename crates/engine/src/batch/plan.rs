//! Which parts are computed once, with which columns, and what the statements become then.
//!
//! A part that has two users, be they statements or other parts, is computed once and kept
//! ([`Kept`]); all its users read that. Scans are not kept: what two of them have decoded stays in
//! memory anyway (`cache::columns`). But conditions on one scan are applied by one reading of it
//! ([`Together`](super::kept::Together)), unless they find their rows without reading all of them.
//!
//! # Invariants
//! - A statement's new plan has the rows, names and types of the one it had.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use datafusion::arrow::datatypes::{Field, Schema};
use datafusion::common::tree_node::{Transformed, TreeNode};
use datafusion::common::{Column, DataFusionError, Result, TableReference};
use datafusion::datasource::{provider_as_source, source_as_provider};
use datafusion::logical_expr::utils::{conjunction, disjunction};
use datafusion::logical_expr::{
    Aggregate, Expr, Filter, Join, JoinConstraint, LogicalPlan, Projection, TableScanBuilder,
};
use uplake_table::id_column;

use super::kept::{Kept, KeptRows, Recipe, Together};
use super::parts::{Kind, LEFT, Made, Names, PartId, Parts, RIGHT, Seen, names_in};
use crate::scan::lake_table::LakeTable;

/// Conditions that one reading of a scan applies: each costs a look at every row.
const CONDITIONS_TOGETHER: usize = 32;

/// Who uses a part.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum User {
    Statement(usize),
    Part(PartId),
}

/// A statement's plan that reads what is kept.
pub(super) struct Rewritten {
    pub plan: LogicalPlan,
    pub reads: Vec<Arc<Kept>>,
}

/// Plans that read what they have in common from memory; `None` for one that has nothing in common
/// with others. With them, what is kept.
pub(super) fn share(plans: &[&LogicalPlan]) -> (Vec<Option<Rewritten>>, Vec<Arc<Kept>>) {
    let mut sharing = Sharing::default();
    let users = sharing.users(plans);
    let groups = sharing.decide(&users);
    for plan in plans {
        sharing.demand_of_plan(plan);
    }
    let ids: Vec<PartId> = sharing.wanted.keys().copied().collect();
    for part in ids.iter().rev() {
        let names = sharing.wanted[part].clone();
        sharing.demand_below(*part, &names);
    }
    let togethers = sharing.togethers(&groups);
    for part in ids {
        // One that cannot be made is computed by each user for itself.
        if let Ok(kept) = sharing.keep(part, togethers.get(&part)) {
            sharing.kept.insert(part, kept);
        }
    }
    sharing.fill(&togethers);
    let rewritten = plans.iter().map(|plan| sharing.rewritten(plan)).collect();
    (rewritten, sharing.kept.into_values().collect())
}

#[derive(Default)]
struct Sharing {
    parts: Parts,
    /// Parts to keep, and the columns that are wanted of them.
    wanted: BTreeMap<PartId, Names>,
    /// The column that is read of a part of which somebody needs the number of rows alone.
    any: HashMap<PartId, String>,
    kept: HashMap<PartId, Arc<Kept>>,
}

/// Conditions, and who keeps the rows for which they hold.
type Filters = Vec<(Expr, Arc<Kept>)>;

/// Filters that are applied by one reading of their scan.
type Groups = Vec<Vec<PartId>>;

impl Sharing {
    /// The users of each part.
    fn users(&mut self, plans: &[&LogicalPlan]) -> BTreeMap<PartId, HashSet<User>> {
        let mut users: BTreeMap<PartId, HashSet<User>> = BTreeMap::new();
        for (number, plan) in plans.iter().enumerate() {
            let mut tops = Vec::new();
            self.tops(plan, &mut tops);
            for top in tops {
                self.count(top, User::Statement(number), &mut users);
            }
        }
        users
    }

    /// The largest parts of a plan.
    fn tops(&mut self, plan: &LogicalPlan, tops: &mut Vec<PartId>) {
        match self.parts.see(plan) {
            Some(seen) => tops.push(seen.part),
            None => plan.inputs().into_iter().for_each(|input| self.tops(input, tops)),
        }
    }

    fn count(&self, part: PartId, user: User, users: &mut BTreeMap<PartId, HashSet<User>>) {
        let known = users.contains_key(&part);
        let new = users.entry(part).or_default().insert(user);
        // A statement that has a part twice uses it twice.
        if !new {
            users.entry(part).or_default().insert(User::Part(part));
        }
        if !known {
            let inputs = self.parts.inputs(part);
            for (place, input) in inputs.iter().enumerate() {
                self.count(*input, User::Part(part), users);
                if inputs[..place].contains(input) {
                    users.entry(*input).or_default().insert(User::Part(*input));
                }
            }
        }
    }

    /// What is kept, and what is filtered together.
    fn decide(&mut self, users: &BTreeMap<PartId, HashSet<User>>) -> Groups {
        let mut by_scan: BTreeMap<PartId, Vec<PartId>> = BTreeMap::new();
        for (part, of) in users {
            match &self.parts.all[*part].kind {
                Kind::Scan { .. } => continue,
                Kind::Filter { input, .. } if self.reads_all(*input, *part) => {
                    by_scan.entry(*input).or_default().push(*part);
                }
                _ => {}
            }
            if of.len() > 1 {
                self.wanted.insert(*part, Names::new());
            }
        }
        let mut groups = Vec::new();
        for filters in by_scan.into_values().filter(|filters| filters.len() > 1) {
            self.wanted.extend(filters.iter().map(|filter| (*filter, Names::new())));
            groups.extend(filters.chunks(CONDITIONS_TOGETHER).map(<[PartId]>::to_vec));
        }
        groups
    }

    /// Does a filter on a scan need to look at all rows of it? It does not if they are sorted by what it
    /// asks for, or have an index of it.
    fn reads_all(&self, scan: PartId, filter: PartId) -> bool {
        let (Kind::Scan { .. }, Kind::Filter { conditions, .. }) =
            (&self.parts.all[scan].kind, &self.parts.all[filter].kind)
        else {
            return false;
        };
        let Some(source) = &self.parts.all[scan].source else { return false };
        let Ok(provider) = source_as_provider(source) else { return false };
        let Some(table) = provider.downcast_ref::<LakeTable>() else { return false };
        let snapshot = table.snapshot();
        let sorted = snapshot.cluster_by().first();
        let indexed = snapshot.indexes().iter().map(|index| &index.column);
        let found: HashSet<String> = sorted
            .into_iter()
            .chain(indexed)
            .flat_map(|column| [column.to_lowercase(), id_column(column).to_lowercase()])
            .collect();
        conditions.iter().flat_map(names_in).all(|name| match self.parts.made(scan, &name) {
            Some(Made::Field(field)) => !found.contains(field),
            _ => false,
        })
    }

    /// Notes the columns that a statement wants of what is kept.
    fn demand_of_plan(&mut self, plan: &LogicalPlan) {
        match self.parts.see(plan) {
            Some(seen) if self.wanted.contains_key(&seen.part) => {
                let names = seen.columns.iter().flat_map(names_in).collect();
                self.want(seen.part, names);
            }
            _ => plan.inputs().into_iter().for_each(|input| self.demand_of_plan(input)),
        }
    }

    fn want(&mut self, part: PartId, mut names: Names) {
        if names.is_empty() {
            let any = self.parts.any_column(part);
            self.any.insert(part, any.clone());
            names.insert(any);
        }
        match self.wanted.get_mut(&part) {
            Some(wanted) => wanted.extend(names),
            None => self.demand_below(part, &names),
        }
    }

    /// Notes what `names` of a part need of what is kept below it.
    fn demand_below(&mut self, part: PartId, names: &Names) {
        // Kept for nobody: its users are in what is kept themselves.
        if names.is_empty() {
            return;
        }
        for (input, names) in self.needs(part, names) {
            self.want(input, names);
        }
    }

    /// The columns of its inputs that a part needs to make `names`.
    fn needs(&self, part: PartId, names: &Names) -> Vec<(PartId, Names)> {
        let made = || names.iter().filter_map(|name| self.parts.made(part, name));
        match &self.parts.all[part].kind {
            Kind::Scan { .. } => Vec::new(),
            Kind::Filter { input, conditions } => {
                let below = conditions.iter().flat_map(names_in).chain(names.iter().cloned());
                vec![(*input, below.collect())]
            }
            Kind::Group { input, by } => {
                let aggregates = made().filter_map(|made| match made {
                    Made::Aggregate(expr) => Some(expr),
                    _ => None,
                });
                vec![(*input, by.iter().chain(aggregates).flat_map(names_in).collect())]
            }
            Kind::Join { sides, on, filter, .. } => {
                let mut below = [Names::new(), Names::new()];
                for (l, r) in on {
                    below[0].extend(names_in(l));
                    below[1].extend(names_in(r));
                }
                for made in made() {
                    match made {
                        Made::Left(expr) => below[0].extend(names_in(expr)),
                        Made::Right(expr) => below[1].extend(names_in(expr)),
                        _ => {}
                    }
                }
                for name in filter.iter().flat_map(names_in) {
                    match (name.strip_prefix(LEFT), name.strip_prefix(RIGHT)) {
                        (Some(name), _) => below[0].insert(name.to_owned()),
                        (_, Some(name)) => below[1].insert(name.to_owned()),
                        _ => false,
                    };
                }
                sides.iter().copied().zip(below).collect()
            }
        }
    }

    /// The readings that apply several filters, by filter.
    fn togethers(&self, groups: &Groups) -> HashMap<PartId, Arc<Together>> {
        let mut togethers = HashMap::new();
        for group in groups {
            let used: Vec<PartId> =
                group.iter().copied().filter(|part| !self.wanted[part].is_empty()).collect();
            if used.len() > 1 {
                let together = Arc::new(Together::new(used[0]));
                togethers.extend(used.into_iter().map(|part| (part, Arc::clone(&together))));
            }
        }
        togethers
    }

    fn keep(&mut self, part: PartId, together: Option<&Arc<Together>>) -> Result<Arc<Kept>> {
        let names = self.wanted[&part].clone();
        if names.is_empty() {
            return Err(DataFusionError::Internal("nobody wants this part".into()));
        }
        let mut reads = Vec::new();
        let plan = self.make(part, &names, &mut reads)?;
        let fields = plan.schema().fields().iter();
        // With what is said of columns: which of them are ids.
        let fields: Vec<Field> = fields.map(|f| f.as_ref().clone().with_nullable(true)).collect();
        let recipe = match together {
            Some(together) => Recipe::Together(Arc::clone(together)),
            None => Recipe::Plan { plan, reads },
        };
        let key = self.key_of(part).and_then(|key| names.iter().position(|name| *name == key));
        Ok(Arc::new(Kept::new(part, Arc::new(Schema::new(fields)), key, recipe)))
    }

    /// The column that has a value once at most in a part.
    fn key_of(&mut self, part: PartId) -> Option<String> {
        match &self.parts.all[part].kind {
            Kind::Filter { input, .. } => self.key_of(*input),
            Kind::Group { by, .. } if by.len() == 1 => {
                names_in(&self.parts.column(part, Made::Key(0))).pop_first()
            }
            _ => None,
        }
    }

    /// Says to each reading what it reads and for whom.
    fn fill(&mut self, togethers: &HashMap<PartId, Arc<Together>>) {
        let mut members: Vec<(PartId, &Arc<Together>)> =
            togethers.iter().map(|(part, together)| (*part, together)).collect();
        members.sort_by_key(|(part, _)| *part);
        let mut done: Vec<&Arc<Together>> = Vec::new();
        for (_, together) in &members {
            if done.iter().any(|known| Arc::ptr_eq(known, together)) {
                continue;
            }
            done.push(together);
            let of = members.iter().filter(|(_, other)| Arc::ptr_eq(other, together));
            let parts: Vec<PartId> = of.map(|(part, _)| *part).collect();
            // Its filters stay without rows otherwise, and their users compute them.
            if let Ok((scan, filters)) = self.reading(&parts) {
                together.fill(scan, filters);
            }
        }
    }

    /// The scan that several filters read, and the filters.
    fn reading(&self, parts: &[PartId]) -> Result<(LogicalPlan, Filters)> {
        let (mut names, mut filters, mut scan) = (Names::new(), Vec::new(), None);
        for part in parts {
            let Kind::Filter { input, conditions } = &self.parts.all[*part].kind else { continue };
            let Some(kept) = self.kept.get(part) else { continue };
            scan = Some(*input);
            names.extend(self.needs(*part, &self.wanted[part]).into_iter().flat_map(|(_, n)| n));
            if let Some(condition) = conjunction(conditions.iter().cloned()) {
                filters.push((condition, Arc::clone(kept)));
            }
        }
        let scan = scan.ok_or_else(|| DataFusionError::Internal("no filters".into()))?;
        let hint = disjunction(filters.iter().map(|(condition, _)| condition.clone()));
        Ok((self.make_scan(scan, &names, hint)?, filters))
    }

    /// A plan of the part with exactly the columns `names`, in their order.
    fn make(&self, part: PartId, names: &Names, reads: &mut Vec<Arc<Kept>>) -> Result<LogicalPlan> {
        let plan = match &self.parts.all[part].kind {
            Kind::Scan { .. } => return self.make_scan(part, names, None),
            Kind::Filter { input, conditions } => {
                let condition = conjunction(conditions.iter().cloned()).ok_or_else(|| {
                    DataFusionError::Internal("a filter without condition".into())
                })?;
                let below = self.needs(part, names).remove(0).1;
                let is_scan = matches!(self.parts.all[*input].kind, Kind::Scan { .. });
                let below = match is_scan {
                    true => self.make_scan(*input, &below, Some(condition.clone()))?,
                    false => self.input(*input, below, reads)?,
                };
                LogicalPlan::Filter(Filter::try_new(condition, Arc::new(below))?)
            }
            Kind::Group { input, by } => {
                let below = self.needs(part, names).remove(0).1;
                let below = self.input(*input, below, reads)?;
                return self.make_group(part, by, names, below);
            }
            Kind::Join { .. } => self.make_join(part, names, reads)?,
        };
        project(plan, names.iter().map(|name| column(name)).collect())
    }

    /// What a part reads: what is kept, or a plan of its own.
    fn input(
        &self,
        part: PartId,
        mut names: Names,
        reads: &mut Vec<Arc<Kept>>,
    ) -> Result<LogicalPlan> {
        if names.is_empty() {
            names.extend(self.any.get(&part).cloned());
        }
        match self.kept.get(&part) {
            Some(kept) => {
                reads.push(Arc::clone(kept));
                let at = |name: &String| kept.schema.index_of(name);
                let columns = names.iter().map(at).collect::<Result<_, _>>()?;
                let source = provider_as_source(Arc::new(KeptRows(Arc::clone(kept))));
                let scan = TableScanBuilder::new(format!("kept_{part}"), source)
                    .with_projection(Some(columns))
                    .build()?;
                let named = names.iter().map(|name| column_of(&scan.table_name, name).alias(name));
                let named = named.collect();
                project(LogicalPlan::TableScan(scan), named)
            }
            None => self.make(part, &names, reads),
        }
    }

    /// `hint`: rows for which it is not true are not needed.
    fn make_scan(&self, part: PartId, names: &Names, hint: Option<Expr>) -> Result<LogicalPlan> {
        let inside = || DataFusionError::Internal("a scan without its table".into());
        let (Kind::Scan { filters, rows_of }, Some(source)) =
            (&self.parts.all[part].kind, &self.parts.all[part].source)
        else {
            return Err(inside());
        };
        let schema = source.schema();
        let field = |name: &str| match self.parts.made(part, name) {
            Some(Made::Field(field)) => Ok(field.clone()),
            _ => Err(inside()),
        };
        let mut fields = names.iter().map(|name| field(name)).collect::<Result<Vec<_>>>()?;
        if fields.is_empty() {
            fields.extend(schema.fields().first().map(|field| field.name().clone()));
        }
        let columns =
            fields.iter().map(|field| schema.index_of(field)).collect::<Result<_, _>>()?;
        let of_table = |name: &str| {
            let field = field(name).unwrap_or_else(|_| name.to_owned());
            column_of(&rows_of.0.as_str().into(), &field)
        };
        let filters = filters.iter().cloned().chain(hint);
        let filters = filters.map(|filter| renamed(filter, &of_table)).collect::<Result<_>>()?;
        let scan = TableScanBuilder::new(rows_of.0.as_str(), Arc::clone(source))
            .with_projection(Some(columns))
            .with_filters(filters)
            .build()?;
        let named = names.iter().zip(&fields);
        let named = named.map(|(name, field)| column_of(&scan.table_name, field).alias(name));
        let named = named.collect();
        project(LogicalPlan::TableScan(scan), named)
    }

    fn make_group(
        &self,
        part: PartId,
        by: &[Expr],
        names: &Names,
        below: LogicalPlan,
    ) -> Result<LogicalPlan> {
        // An aggregate has a column that it is grouped by twice once.
        let mut keys: Vec<Expr> = Vec::new();
        let place_of = |keys: &[Expr], expr: &Expr| keys.iter().position(|key| key == expr);
        for expr in by {
            if place_of(&keys, expr).is_none() {
                keys.push(expr.clone());
            }
        }
        let mut aggregates = Vec::new();
        let mut places = Vec::new();
        for name in names {
            match self.parts.made(part, name) {
                Some(Made::Key(place)) => {
                    places.extend(by.get(*place).and_then(|expr| place_of(&keys, expr)));
                }
                Some(Made::Aggregate(expr)) => {
                    places.push(keys.len() + aggregates.len());
                    // Two that differ in a cast alone would have one name.
                    aggregates.push(expr.clone().alias(name));
                }
                _ => return Err(DataFusionError::Internal("no column of a grouping".into())),
            }
        }
        let grouped = Aggregate::try_new(Arc::new(below), keys, aggregates)?;
        let columns = grouped.schema.columns();
        let named = names.iter().zip(places);
        let named = named.map(|(name, place)| Expr::Column(columns[place].clone()).alias(name));
        let named = named.collect();
        project(LogicalPlan::Aggregate(grouped), named)
    }

    fn make_join(
        &self,
        part: PartId,
        names: &Names,
        reads: &mut Vec<Arc<Kept>>,
    ) -> Result<LogicalPlan> {
        let Kind::Join { sides, on, filter, join_type, nulls, null_aware } =
            &self.parts.all[part].kind
        else {
            return Err(DataFusionError::Internal("no join".into()));
        };
        // What is shown of each side, what is compared, and what the filter looks at.
        let mut shown: [Vec<Expr>; 2] = Default::default();
        for name in names {
            match self.parts.made(part, name) {
                Some(Made::Left(expr)) => shown[0].push(expr.clone().alias(name)),
                Some(Made::Right(expr)) => shown[1].push(expr.clone().alias(name)),
                _ => return Err(DataFusionError::Internal("no column of a join".into())),
            }
        }
        let mut keys = Vec::new();
        for (number, (l, r)) in on.iter().enumerate() {
            let l = key(&mut shown[0], l, LEFT, number);
            keys.push((l, key(&mut shown[1], r, RIGHT, number)));
        }
        for name in filter.iter().flat_map(names_in) {
            let (side, inner) = match (name.strip_prefix(LEFT), name.strip_prefix(RIGHT)) {
                (Some(inner), _) => (0, inner),
                (_, Some(inner)) => (1, inner),
                _ => return Err(DataFusionError::Internal("no side of a join".into())),
            };
            let compared = column(inner).alias(&name);
            if !shown[side].contains(&compared) {
                shown[side].push(compared);
            }
        }
        let mut inputs = Vec::new();
        let below = self.needs(part, names);
        for ((side, names), shown) in below.into_iter().zip(shown) {
            let input = self.input(side, names, reads)?;
            inputs.push(Arc::new(project(input, shown)?));
        }
        let [left, right] = <[_; 2]>::try_from(inputs)
            .map_err(|_| DataFusionError::Internal(format!("sides of {sides:?}")))?;
        Ok(LogicalPlan::Join(Join::try_new(
            left,
            right,
            keys,
            filter.clone(),
            *join_type,
            JoinConstraint::On,
            *nulls,
            *null_aware,
        )?))
    }

    fn rewritten(&mut self, plan: &LogicalPlan) -> Option<Rewritten> {
        let mut reads = Vec::new();
        let rewritten = self.rewrite(plan, &mut reads).ok()??;
        // What it gives is what it gave.
        let same = rewritten.schema().fields().iter().zip(plan.schema().fields().iter());
        let same = same
            .filter(|(new, old)| new.name() == old.name() && new.data_type() == old.data_type())
            .count();
        let whole = same == plan.schema().fields().len();
        whole.then_some(Rewritten { plan: rewritten, reads })
    }

    /// `None`: nothing in it is kept.
    fn rewrite(
        &mut self,
        plan: &LogicalPlan,
        reads: &mut Vec<Arc<Kept>>,
    ) -> Result<Option<LogicalPlan>> {
        if let Some(Seen { part, columns }) = self.parts.see(plan)
            && self.wanted.contains_key(&part)
        {
            if !self.kept.contains_key(&part) {
                return Ok(None);
            }
            let names: Names = columns.iter().flat_map(names_in).collect();
            let input = self.input(part, names, reads)?;
            let fields = plan.schema().iter();
            let named = columns.into_iter().zip(fields).map(|(expr, (relation, field))| {
                expr.alias_qualified(relation.cloned(), field.name())
            });
            return Ok(Some(project(input, named.collect())?));
        }
        let mut inputs = Vec::new();
        let mut changed = false;
        for input in plan.inputs() {
            let new = self.rewrite(input, reads)?;
            changed |= new.is_some();
            inputs.push(new.unwrap_or_else(|| input.clone()));
        }
        if !changed {
            return Ok(None);
        }
        plan.with_new_exprs(plan.expressions(), inputs).map(Some)
    }
}

/// The column of a side that has the key: one that is shown, or one more.
fn key(shown: &mut Vec<Expr>, key: &Expr, side: char, number: usize) -> Expr {
    let same = shown.iter().find_map(|shown| match shown {
        Expr::Alias(alias) if *alias.expr == *key => Some(&alias.name),
        _ => None,
    });
    if let Some(name) = same {
        return column(name);
    }
    let name = format!("{side}key{number}");
    shown.push(key.clone().alias(&name));
    column(&name)
}

fn project(plan: LogicalPlan, columns: Vec<Expr>) -> Result<LogicalPlan> {
    Ok(LogicalPlan::Projection(Projection::try_new(columns, Arc::new(plan))?))
}

fn column(name: &str) -> Expr {
    Expr::Column(Column::new_unqualified(name))
}

fn column_of(table: &TableReference, name: &str) -> Expr {
    Expr::Column(Column::new(Some(table.clone()), name))
}

/// The expression with its columns replaced.
fn renamed(expr: Expr, column: &dyn Fn(&str) -> Expr) -> Result<Expr> {
    let renamed = expr.transform_up(|expr| match &expr {
        Expr::Column(found) => Ok(Transformed::yes(column(&found.name))),
        _ => Ok(Transformed::no(expr)),
    })?;
    Ok(renamed.data)
}
