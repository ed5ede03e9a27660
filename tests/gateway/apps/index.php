<?php
// A script for php-fpm. Its query says what it does.
if (isset($_GET['slow'])) {
    usleep(10000);
}
if (isset($_GET['die'])) {
    echo str_repeat('x', 100000);
    flush();
    posix_kill(getmypid(), 9);
}
if (isset($_GET['warn'])) {
    error_log('a warning for the operator');
}
if (isset($_GET['accel'])) {
    header('X-Accel-Redirect: ' . $_GET['accel']);
    exit;
}
if (isset($_GET['status'])) {
    http_response_code((int) $_GET['status']);
}
header('Content-Type: application/json');
echo json_encode([
    'script' => $_SERVER['SCRIPT_NAME'],
    'info' => $_SERVER['PATH_INFO'] ?? null,
    'pid' => getmypid(),
    'method' => $_SERVER['REQUEST_METHOD'],
    'addr' => $_SERVER['REMOTE_ADDR'],
    'length' => strlen(file_get_contents('php://input')),
    'big' => strlen($_SERVER['HTTP_X_BIG'] ?? ''),
    'user' => $_SERVER['HTTP_X_USER'] ?? null,
    'proxy' => $_SERVER['HTTP_PROXY'] ?? $_SERVER['HTTP_X_OWN'] ?? null,
]);
