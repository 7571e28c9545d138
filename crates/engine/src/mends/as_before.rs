//! Methods that a function in place of another one leaves as they are.
//!
//! Within `impl ScalarUDFImpl` or `impl AggregateUDFImpl` of a type whose field `function` is what it stands for:
//! `scalar_as_before!(coerce_types, is_strict)` hands these on to it, and name, aliases, signature, type and
//! documentation, which every such function does.

macro_rules! scalar_as_before {
    (@coerce_types) => {
        fn coerce_types(
            &self,
            types: &[::datafusion::arrow::datatypes::DataType],
        ) -> ::datafusion::common::Result<Vec<::datafusion::arrow::datatypes::DataType>> {
            self.function.coerce_types(types)
        }
    };
    (@return_field_from_args) => {
        fn return_field_from_args(
            &self,
            args: ::datafusion::logical_expr::ReturnFieldArgs,
        ) -> ::datafusion::common::Result<::datafusion::arrow::datatypes::FieldRef> {
            self.function.return_field_from_args(args)
        }
    };
    (@is_strict) => {
        fn is_strict(&self) -> bool {
            self.function.is_strict()
        }
    };
    (@output_ordering) => {
        fn output_ordering(
            &self,
            inputs: &[::datafusion::logical_expr::sort_properties::ExprProperties],
        ) -> ::datafusion::common::Result<
            ::datafusion::logical_expr::sort_properties::SortProperties,
        > {
            self.function.output_ordering(inputs)
        }
    };
    (@simplify) => {
        fn simplify(
            &self,
            args: Vec<::datafusion::logical_expr::Expr>,
            context: &::datafusion::logical_expr::simplify::SimplifyContext,
        ) -> ::datafusion::common::Result<
            ::datafusion::logical_expr::simplify::ExprSimplifyResult,
        > {
            self.function.simplify(args, context)
        }
    };
    (@schema_name) => {
        fn schema_name(
            &self,
            args: &[::datafusion::logical_expr::Expr],
        ) -> ::datafusion::common::Result<String> {
            self.function.schema_name(args)
        }
    };
    (@short_circuits) => {
        fn short_circuits(&self) -> bool {
            self.function.short_circuits()
        }
    };
    (@conditional_arguments) => {
        fn conditional_arguments<'a>(
            &self,
            args: &'a [::datafusion::logical_expr::Expr],
        ) -> Option<(
            Vec<&'a ::datafusion::logical_expr::Expr>,
            Vec<&'a ::datafusion::logical_expr::Expr>,
        )> {
            self.function.conditional_arguments(args)
        }
    };
    (@evaluate_bounds) => {
        fn evaluate_bounds(
            &self,
            inputs: &[&::datafusion::logical_expr::interval_arithmetic::Interval],
        ) -> ::datafusion::common::Result<
            ::datafusion::logical_expr::interval_arithmetic::Interval,
        > {
            self.function.evaluate_bounds(inputs)
        }
    };
    (@propagate_constraints) => {
        fn propagate_constraints(
            &self,
            interval: &::datafusion::logical_expr::interval_arithmetic::Interval,
            inputs: &[&::datafusion::logical_expr::interval_arithmetic::Interval],
        ) -> ::datafusion::common::Result<
            Option<Vec<::datafusion::logical_expr::interval_arithmetic::Interval>>,
        > {
            self.function.propagate_constraints(interval, inputs)
        }
    };
    (@preserves_lex_ordering) => {
        fn preserves_lex_ordering(
            &self,
            inputs: &[::datafusion::logical_expr::sort_properties::ExprProperties],
        ) -> ::datafusion::common::Result<bool> {
            self.function.preserves_lex_ordering(inputs)
        }
    };
    (@strictly_order_preserving) => {
        fn strictly_order_preserving(
            &self,
            inputs: &[::datafusion::logical_expr::sort_properties::ExprProperties],
        ) -> ::datafusion::common::Result<bool> {
            self.function.strictly_order_preserving(inputs)
        }
    };
    (@preimage) => {
        fn preimage(
            &self,
            args: &[::datafusion::logical_expr::Expr],
            literal: &::datafusion::logical_expr::Expr,
            context: &::datafusion::logical_expr::simplify::SimplifyContext,
        ) -> ::datafusion::common::Result<::datafusion::logical_expr::preimage::PreimageResult>
        {
            self.function.preimage(args, literal, context)
        }
    };
    (@placement) => {
        fn placement(
            &self,
            args: &[::datafusion::logical_expr::ExpressionPlacement],
        ) -> ::datafusion::logical_expr::ExpressionPlacement {
            self.function.placement(args)
        }
    };
    ($($method:ident),* $(,)?) => {
        $crate::mends::as_before::as_before!();
        $($crate::mends::as_before::scalar_as_before!(@$method);)*
    };
}

macro_rules! aggregate_as_before {
    (@accumulator) => {
        fn accumulator(
            &self,
            args: ::datafusion::logical_expr::function::AccumulatorArgs,
        ) -> ::datafusion::common::Result<Box<dyn ::datafusion::logical_expr::Accumulator>> {
            self.function.accumulator(args)
        }
    };
    (@state_fields) => {
        fn state_fields(
            &self,
            args: ::datafusion::logical_expr::function::StateFieldsArgs,
        ) -> ::datafusion::common::Result<Vec<::datafusion::arrow::datatypes::FieldRef>> {
            self.function.state_fields(args)
        }
    };
    (@groups_accumulator_supported) => {
        fn groups_accumulator_supported(
            &self,
            args: ::datafusion::logical_expr::function::AccumulatorArgs,
        ) -> bool {
            self.function.groups_accumulator_supported(args)
        }
    };
    (@create_groups_accumulator) => {
        fn create_groups_accumulator(
            &self,
            args: ::datafusion::logical_expr::function::AccumulatorArgs,
        ) -> ::datafusion::common::Result<Box<dyn ::datafusion::logical_expr::GroupsAccumulator>> {
            self.function.create_groups_accumulator(args)
        }
    };
    (@create_sliding_accumulator) => {
        fn create_sliding_accumulator(
            &self,
            args: ::datafusion::logical_expr::function::AccumulatorArgs,
        ) -> ::datafusion::common::Result<Box<dyn ::datafusion::logical_expr::Accumulator>> {
            self.function.create_sliding_accumulator(args)
        }
    };
    (@order_sensitivity) => {
        fn order_sensitivity(
            &self,
        ) -> ::datafusion::logical_expr::utils::AggregateOrderSensitivity {
            self.function.order_sensitivity()
        }
    };
    (@reverse_expr) => {
        fn reverse_expr(&self) -> ::datafusion::logical_expr::ReversedUDAF {
            self.function.reverse_udf()
        }
    };
    (@is_nullable) => {
        fn is_nullable(&self) -> bool {
            self.function.is_nullable()
        }
    };
    (@is_identical_reversed) => {
        fn reverse_expr(&self) -> ::datafusion::logical_expr::ReversedUDAF {
            ::datafusion::logical_expr::ReversedUDAF::Identical
        }
    };
    (@coerce_types) => {
        fn coerce_types(
            &self,
            types: &[::datafusion::arrow::datatypes::DataType],
        ) -> ::datafusion::common::Result<Vec<::datafusion::arrow::datatypes::DataType>> {
            self.function.coerce_types(types)
        }
    };
    (@value_from_stats) => {
        fn value_from_stats(
            &self,
            args: &::datafusion::logical_expr::StatisticsArgs,
        ) -> Option<::datafusion::common::ScalarValue> {
            self.function.value_from_stats(args)
        }
    };
    (@default_value) => {
        fn default_value(
            &self,
            data_type: &::datafusion::arrow::datatypes::DataType,
        ) -> ::datafusion::common::Result<::datafusion::common::ScalarValue> {
            self.function.default_value(data_type)
        }
    };
    ($($method:ident),* $(,)?) => {
        $crate::mends::as_before::as_before!();
        $($crate::mends::as_before::aggregate_as_before!(@$method);)*
    };
}

/// What functions of both kinds leave as it is.
macro_rules! as_before {
    () => {
        $crate::mends::as_before::named_as_before!();

        fn return_type(
            &self,
            types: &[::datafusion::arrow::datatypes::DataType],
        ) -> ::datafusion::common::Result<::datafusion::arrow::datatypes::DataType> {
            self.function.return_type(types)
        }
    };
}

/// What functions leave as it is that give another type; windows, too.
macro_rules! named_as_before {
    () => {
        fn name(&self) -> &str {
            self.function.name()
        }

        fn aliases(&self) -> &[String] {
            self.function.aliases()
        }

        fn signature(&self) -> &::datafusion::logical_expr::Signature {
            self.function.signature()
        }

        fn documentation(&self) -> Option<&::datafusion::logical_expr::Documentation> {
            self.function.documentation()
        }
    };
}

pub(super) use {aggregate_as_before, as_before, named_as_before, scalar_as_before};
