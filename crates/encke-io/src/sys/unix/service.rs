//! No services of Windows on these systems.

use std::path::{Path, PathBuf};

use crate::service::{ServiceAccess, ServiceControl, ServiceManagerError, ServicePhase, ServicePlan};

/// Whether this system has a service manager of Windows.
pub const IS_AVAILABLE: bool = false;

/// The directory for the data of services.
///
/// # Errors
/// Always: this system has no such services.
pub fn data_directory() -> Result<PathBuf, ServiceManagerError> {
    Err(ServiceManagerError::Unsupported)
}

/// Whether this process may install services.
///
/// # Errors
/// Always: this system has no such services.
pub fn check_rights() -> Result<(), ServiceManagerError> {
    Err(ServiceManagerError::Unsupported)
}

/// Whether a service is installed.
///
/// # Errors
/// Always: this system has no such services.
pub fn is_installed(_name: &str) -> Result<bool, ServiceManagerError> {
    Err(ServiceManagerError::Unsupported)
}

/// Creates a directory for the service's account.
///
/// # Errors
/// Always: this system has no such services.
pub fn make_directory(_path: &Path, _access: ServiceAccess) -> Result<(), ServiceManagerError> {
    Err(ServiceManagerError::Unsupported)
}

/// Checks the owner of a settings file.
///
/// # Errors
/// Always: this system has no such services.
pub fn check_settings(_path: &Path) -> Result<(), ServiceManagerError> {
    Err(ServiceManagerError::Unsupported)
}

/// Installs a service.
///
/// # Errors
/// Always: this system has no such services.
pub fn install(_plan: &ServicePlan<'_>) -> Result<(), ServiceManagerError> {
    Err(ServiceManagerError::Unsupported)
}

/// Removes a service.
///
/// # Errors
/// Always: this system has no such services.
pub fn remove(_name: &str) -> Result<(), ServiceManagerError> {
    Err(ServiceManagerError::Unsupported)
}

/// Starts a service.
///
/// # Errors
/// Always: this system has no such services.
pub fn start(_name: &str) -> Result<(), ServiceManagerError> {
    Err(ServiceManagerError::Unsupported)
}

/// Stops a service.
///
/// # Errors
/// Always: this system has no such services.
pub fn stop(_name: &str) -> Result<(), ServiceManagerError> {
    Err(ServiceManagerError::Unsupported)
}

/// Sends a control to a service.
///
/// # Errors
/// Always: this system has no such services.
pub fn control(_name: &str, _control: ServiceControl) -> Result<(), ServiceManagerError> {
    Err(ServiceManagerError::Unsupported)
}

/// Runs the process of a service.
///
/// # Errors
/// Always: this system has no such services.
pub fn run(_name: &str, _main: impl FnOnce() -> u32 + Send + 'static) -> Result<(), ServiceManagerError> {
    Err(ServiceManagerError::Unsupported)
}

/// Does nothing: this process is no service.
pub fn set_phase(_phase: ServicePhase) {}

/// Does nothing: this system has no event log.
pub fn report_error(_name: &str, _text: &str) {}
