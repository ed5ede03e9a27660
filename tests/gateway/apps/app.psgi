# An application for servers of PSGI. /…/send names a file in the fields that the query gives, /…/stream waits for a gate within its
# response, /…/shape is a response of the status and the fields in the query; everything else is recorded only.
use strict;
use warnings;
use Digest::SHA;
use Fcntl;
use JSON::PP;
use Plack::Request;

# FCGI flushes each piece of a response only with it.
$| = 1;
my $json = JSON::PP->new->canonical;

sub note {
    sysopen my $record, $ENV{RECORD}, O_WRONLY | O_APPEND or die $!;
    syswrite $record, $json->encode({@_}) . "\n";
}

sub {
    my $env = shift;
    my ($sum, $length) = (Digest::SHA->new(256), 0);
    while ($env->{'psgi.input'}->read(my $piece, 65_536)) {
        $sum->add($piece);
        $length += length $piece;
    }
    my $digest = $sum->hexdigest;
    my @names  = map { my $name = lc substr $_, 5; $name =~ tr/_/-/; $name } grep { /^HTTP_/ } sort keys %$env;
    note(method => $env->{REQUEST_METHOD}, target => $env->{REQUEST_URI}, length => $length, digest => $digest,
        fields => \@names, client => $env->{HTTP_X_FORWARDED_FOR});
    if ($env->{PATH_INFO} =~ m{^/[^/]*/send}) {
        my $query = Plack::Request->new($env)->query_parameters;
        my $body  = "\0" x ($query->get('body') || 0);
        if (my $path = $query->get('file')) {
            open my $file, '<:raw', $path or die $!;
            local $/;
            $body = <$file>;
        }
        my @fields;
        $query->each(sub { push @fields, @_ unless $_[0] =~ /^(body|file)$/ });
        return [200, ['Content-Length' => length $body, @fields], $env->{REQUEST_METHOD} eq 'HEAD' ? [] : [$body]];
    }
    if ($env->{PATH_INFO} =~ m{^/[^/]*/stream}) {
        return sub {
            my $writer = shift->([200, ['Content-Type' => 'text/plain']]);
            $writer->write("first\n");
            select undef, undef, undef, 0.01 until -e $ENV{GATE};
            $writer->write("last\n");
            $writer->close;
        };
    }
    if ($env->{PATH_INFO} =~ m{^/[^/]*/shape}) {
        my $query  = Plack::Request->new($env)->query_parameters;
        my @fields = map { split /: /, $_, 2 } $query->get_all('field');
        my %seen   = map { ($_ => unpack 'H*', $env->{$_}) } grep { /^[A-Z][A-Z_]*$/ && $_ ne 'REMOTE_PORT' } keys %$env;
        my $status = $query->get('status') || 200;
        my $body   = defined $query->get('bytes') ? join '', map { chr($_ * 7 % 256) } 1 .. $query->get('bytes')
            : $json->encode({seen => \%seen, length => $length, digest => $digest});
        $body = '' if $env->{REQUEST_METHOD} eq 'HEAD' || $status == 204 || $status == 304;
        push @fields, 'Content-Type' => 'application/octet-stream' unless $status == 204 || $status == 304 || grep { /^content-type$/i } @fields;
        return [$status, \@fields, [$body]];
    }
    return [200, ['X-Seen' => 1, 'Content-Length' => length $digest], $env->{REQUEST_METHOD} eq 'HEAD' ? [] : [$digest]];
};
