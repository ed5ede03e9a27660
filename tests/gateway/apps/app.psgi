# An application for servers of PSGI. /…/send names a file in the fields that the query gives; everything else is recorded only.
use strict;
use warnings;
use Digest::SHA;
use Fcntl;
use JSON::PP;
use Plack::Request;

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
    return [200, ['X-Seen' => 1, 'Content-Length' => length $digest], $env->{REQUEST_METHOD} eq 'HEAD' ? [] : [$digest]];
};
