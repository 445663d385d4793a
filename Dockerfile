# The image holds the one static program and no shell.
FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
ARG VERSION=
RUN CGO_ENABLED=0 go build -trimpath -ldflags "-s -w -X main.version=${VERSION}" -o /out/tokend ./cmd/tokend

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/tokend /tokend
USER 65532:65532
EXPOSE 8080
# The admin listener stands on loopback unless TOKEND_ADMIN_LISTEN says otherwise.
HEALTHCHECK --interval=10s --timeout=3s CMD ["/tokend", "healthcheck"]
ENTRYPOINT ["/tokend"]
CMD ["serve"]
