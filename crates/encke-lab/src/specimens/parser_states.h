/* The states of a byte-wise parser of a request's head: one grammar for every way to change the state.
 *
 *   method SP+ target SP+ HTTP/1.x CR LF  (name ":" SP* value CR LF)*  CR LF
 *
 * parser.c includes this file once per parser, after defining these macros:
 *
 *   STATE(name)   the code of a state begins here
 *   GO(name)      that state handles the next byte
 *   STAY          this state handles the next byte, too
 *
 * The parsers differ in nothing else. They are as lenient as the reports' programs, and not for production. */

STATE(method)
    if (byte == ' ') {
        head->method = (struct lab_span){start, at - start};
        if (at == start) return -1;
        GO(spaces_before_target);
    }
    if ((byte < 'A' || byte > 'Z') && byte != '_' && byte != '-') return -1;
    STAY(method);

STATE(spaces_before_target)
    if (byte == ' ') STAY(spaces_before_target);
    if (byte < 0x21 || byte == 0x7f) return -1;
    token = at;
    GO(target);

STATE(target)
    if (byte == ' ') {
        head->target = (struct lab_span){token, at - token};
        GO(version_h);
    }
    if (byte < 0x21 || byte == 0x7f) return -1;
    STAY(target);

STATE(version_h)
    if (byte == ' ') STAY(version_h);
    if (byte != 'H') return -1;
    GO(version_ht);

STATE(version_ht)
    if (byte != 'T') return -1;
    GO(version_htt);

STATE(version_htt)
    if (byte != 'T') return -1;
    GO(version_http);

STATE(version_http)
    if (byte != 'P') return -1;
    GO(version_slash);

STATE(version_slash)
    if (byte != '/') return -1;
    GO(version_major);

STATE(version_major)
    if (byte != '1') return -1;
    GO(version_dot);

STATE(version_dot)
    if (byte != '.') return -1;
    GO(version_minor);

STATE(version_minor)
    if (byte < '0' || byte > '9') return -1;
    head->minor = byte - '0';
    GO(version_end);

STATE(version_end)
    if (byte != '\r') return -1;
    GO(line_end);

STATE(line_end)
    if (byte != '\n') return -1;
    GO(line_start);

STATE(line_start)
    if (byte == '\r') GO(last_line_end);
    if (byte < 0x21 || byte == 0x7f || byte == ':') return -1;
    if (head->fields == FIELDS_MAX) return -1;
    token = at;
    GO(name);

STATE(name)
    if (byte == ':') {
        head->names[head->fields] = (struct lab_span){token, at - token};
        GO(spaces_before_value);
    }
    if (byte < 0x21 || byte == 0x7f) return -1;
    STAY(name);

STATE(spaces_before_value)
    if (byte == ' ') STAY(spaces_before_value);
    token = at;
    if (byte == '\r') {
        head->values[head->fields++] = (struct lab_span){token, 0};
        GO(line_end);
    }
    if (byte < 0x20 || byte == 0x7f) return -1;
    GO(value);

STATE(value)
    if (byte == '\r') {
        head->values[head->fields++] = (struct lab_span){token, at - token};
        GO(line_end);
    }
    if (byte < 0x20 && byte != '\t') return -1;
    STAY(value);

STATE(last_line_end)
    if (byte != '\n') return -1;
    return (int)(at + 1 - start);
