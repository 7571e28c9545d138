//! Values of parameters.
