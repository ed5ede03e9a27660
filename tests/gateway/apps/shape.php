<?php
// A response of the status and the fields in the query. Its content is so many bytes, or the request as the script sees it.
foreach ((array) ($_GET['field'] ?? []) as $field) {
    header($field, false);
}
if (isset($_GET['status'])) {
    http_response_code((int) $_GET['status']);
}
if (!preg_grep('/^content-type:/i', (array) ($_GET['field'] ?? []))) {
    header('Content-Type: application/octet-stream');
}
if (isset($_GET['bytes'])) {
    for ($place = 1; $place <= (int) $_GET['bytes']; $place++) {
        echo chr($place * 7 % 256);
    }
    exit;
}
$body = file_get_contents('php://input');
// These are PHP's own, or differ for each connection.
$own = ['argc', 'argv', 'FCGI_ROLE', 'HOME', 'PHP_SELF', 'PHP_AUTH_USER', 'PHP_AUTH_PW', 'REMOTE_PORT', 'REQUEST_TIME', 'REQUEST_TIME_FLOAT', 'USER'];
$seen = array_diff_key($_SERVER, array_flip($own));
ksort($seen);
echo json_encode(['seen' => array_map('bin2hex', $seen), 'length' => strlen($body), 'digest' => hash('sha256', $body)]);
